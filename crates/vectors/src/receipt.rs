//! A verifier of COSE Receipts of inclusion, written from RFC 9942 and RFC 9162. Except for the
//! signature suites and the check of CBOR items, it uses no code of the product.

use moteseal_core::digest::Digest;
use moteseal_core::signature::PublicKey;

use moteseal_fixtures::cbor_tree::{Value, bytes, int, text};

/// Verifies a receipt and returns the root for which it proves the inclusion of `record`.
pub fn verify(receipt: &[u8], record: &[u8], key: &PublicKey) -> Option<[u8; 32]> {
    // A receipt is a tagged COSE_Sign1 (RFC 9942, section 4.2).
    let Value::Tag(18, object) = whole(receipt)? else { return None };
    let Value::Array(parts) = *object else { return None };
    let [
        Value::Bytes(protected),
        Value::Map(unprotected),
        Value::Simple(22),
        Value::Bytes(signature),
    ] = parts.as_slice()
    else {
        return None;
    };
    // Section 5.2.1: alg and vds are required in the protected header; vds 1 is RFC9162_SHA256.
    let Value::Map(header) = whole(protected)? else { return None };
    let entry = |map: &[(Value, Value)], label: i64| {
        map.iter().find(|(key, _)| *key == int(label)).map(|(_, value)| value.clone())
    };
    if entry(&header, 395)? != int(1) || entry(&header, 1)? != int(key.algorithm().cose()) {
        return None;
    }
    // The unprotected header contains vdp (396), which has the inclusion proofs under the label -1.
    let Value::Map(proofs) = entry(unprotected, 396)? else { return None };
    let Value::Array(proofs) = entry(&proofs, -1)? else { return None };
    let [Value::Bytes(proof)] = proofs.as_slice() else { return None };
    let Value::Array(proof) = whole(proof)? else { return None };
    let [Value::Uint(size), Value::Uint(leaf), Value::Array(path)] = proof.as_slice() else {
        return None;
    };
    let path: Option<Vec<[u8; 32]>> = path
        .iter()
        .map(|digest| match digest {
            Value::Bytes(digest) => digest.as_slice().try_into().ok(),
            _ => None,
        })
        .collect();
    let path = path.filter(|path| !path.is_empty())?;
    let root = root(record, *leaf, *size, &path)?;
    // The signature is over the root, which is the detached payload.
    let message =
        Value::Array(vec![text("Signature1"), bytes(protected), bytes(&[]), bytes(&root)]).encode();
    key.verify(&message, signature).ok().map(|()| root)
}

/// Computes the root from an inclusion proof with the steps 1 to 5 of RFC 9162, section 2.1.3.2.
fn root(record: &[u8], leaf_index: u64, tree_size: u64, path: &[[u8; 32]]) -> Option<[u8; 32]> {
    if leaf_index >= tree_size {
        return None;
    }
    let (mut fn_, mut sn) = (leaf_index, tree_size - 1);
    let mut r = Digest::of(&[&[0], record]).0;
    for p in path {
        if sn == 0 {
            return None;
        }
        if fn_ & 1 == 1 || fn_ == sn {
            r = Digest::of(&[&[1], p, &r]).0;
            if fn_ & 1 == 0 {
                while fn_ & 1 == 0 && fn_ != 0 {
                    fn_ >>= 1;
                    sn >>= 1;
                }
            }
        } else {
            r = Digest::of(&[&[1], &r, p]).0;
        }
        fn_ >>= 1;
        sn >>= 1;
    }
    (sn == 0).then_some(r)
}

/// Returns the CBOR item that `bytes` consists of. The product's scanner must accept it; the tests'
/// own reader parses it.
fn whole(bytes: &[u8]) -> Option<Value> {
    moteseal_core::cbor::check_item(bytes).ok()?;
    Some(Value::decode(bytes))
}
