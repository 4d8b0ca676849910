//! A slow reference implementation of trees, by the recursive definitions of RFC 9162, section 2.1.
//! It copies the records.

use moteseal_core::Digest;

fn hash(parts: &[&[u8]]) -> Digest {
    Digest::of(parts)
}

/// Returns the largest power of two smaller than `n`.
fn k(n: usize) -> usize {
    let mut k = 1;
    while 2 * k < n {
        k *= 2;
    }
    k
}

/// Returns `MTH(D_n)`, section 2.1.1.
pub(crate) fn root(records: &[Vec<u8>]) -> Digest {
    match records {
        [] => hash(&[]),
        [one] => hash(&[&[0], one]),
        many => {
            let (left, right) = many.split_at(k(many.len()));
            hash(&[&[1], &root(left).0, &root(right).0])
        }
    }
}

/// Returns `PATH(m, D_n)`, section 2.1.3.1.
pub(crate) fn path(m: usize, records: &[Vec<u8>]) -> Vec<Digest> {
    if records.len() < 2 {
        return vec![];
    }
    let (left, right) = records.split_at(k(records.len()));
    let (mut path, sibling) = if m < left.len() {
        (path(m, left), root(right))
    } else {
        (path(m - left.len(), right), root(left))
    };
    path.push(sibling);
    path
}

/// Returns the roots of the maximal subtrees without a selected leaf, from left to right.
pub(crate) fn multiproof(selected: &[bool], records: &[Vec<u8>]) -> Vec<Digest> {
    if records.is_empty() {
        return vec![];
    }
    if !selected.contains(&true) {
        return vec![root(records)];
    }
    if records.len() == 1 {
        return vec![];
    }
    let at = k(records.len());
    let mut proof = multiproof(&selected[..at], &records[..at]);
    proof.extend(multiproof(&selected[at..], &records[at..]));
    proof
}
