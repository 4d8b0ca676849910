//! What was stored last, so that a follower need not compare fingerprints to find it.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use moteseal_api::summary::{CHANGES, Change};

/// The number of changes that are kept.
const KEPT: usize = 1 << 16;

/// The changes that this process stored last.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Distinguishes the cursors of this process from those of others.
    process: u64,
    /// The number of changes that are no longer kept.
    dropped: u64,
    kept: VecDeque<Change>,
}

impl Default for Changes {
    fn default() -> Self {
        let process = RandomState::new().build_hasher().finish();
        Self { process, dropped: 0, kept: VecDeque::new() }
    }
}

impl Changes {
    pub(crate) fn push(&mut self, change: Change) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.kept.push_back(change);
    }

    /// Returns the changes after a cursor, `None` if they are not known; whether there are more; and
    /// the next cursor.
    pub(crate) fn after(&self, cursor: Option<&str>) -> (Option<Vec<Change>>, bool, String) {
        let end = self.dropped + self.kept.len() as u64;
        let at = cursor.and_then(|cursor| {
            let (process, number) = cursor.split_once('-')?;
            let is_ours = u64::from_str_radix(process, 16).ok()? == self.process;
            number.parse::<u64>().ok().filter(|at| is_ours && (self.dropped..=end).contains(at))
        });
        let Some(at) = at else { return (None, false, self.cursor(end)) };
        let skip = usize::try_from(at - self.dropped).unwrap_or(usize::MAX);
        let changes: Vec<Change> = self.kept.iter().skip(skip).take(CHANGES).copied().collect();
        let next = at + changes.len() as u64;
        (Some(changes), next < end, self.cursor(next))
    }

    fn cursor(&self, number: u64) -> String {
        format!("{:x}-{number}", self.process)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_follower_reads_each_change_once_or_learns_that_it_missed_some() {
        let mut changes = Changes::default();
        let (first, more, mut cursor) = changes.after(None);
        assert_eq!((first, more), (None, false));
        let change = |epoch| Change::Manifest { epoch };
        (0..CHANGES as u64 + 5).for_each(|epoch| changes.push(change(epoch)));
        let mut read = Vec::new();
        loop {
            let (page, more, next) = changes.after(Some(&cursor));
            read.extend(page.unwrap());
            cursor = next;
            if !more {
                break;
            }
        }
        assert_eq!(read, (0..CHANGES as u64 + 5).map(change).collect::<Vec<_>>());
        assert_eq!(changes.after(Some(&cursor)).0, Some(Vec::new()));
        (0..=KEPT as u64).for_each(|epoch| changes.push(change(epoch)));
        assert_eq!(changes.after(Some(&cursor)).0, None, "one change was dropped");
        let other = Changes::default();
        for wrong in [other.cursor(0), String::new(), "-".to_owned(), changes.cursor(u64::MAX)] {
            assert_eq!(changes.after(Some(&wrong)).0, None, "{wrong}");
        }
    }
}
