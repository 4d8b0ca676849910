//! A store in memory. The simulator keeps it when the node reboots.

use std::collections::BTreeMap;
use std::convert::Infallible;

use moteseal_broadcast::recovery::{Item, Store};
use moteseal_broadcast::{ChainNumber, ChainRef, KeyId, Revoked};

/// A store that keeps all items, including retired ones, as an archive does.
#[derive(Clone, Debug, Default)]
pub struct MapStore {
    items: BTreeMap<Item, Vec<u8>>,
    floors: BTreeMap<KeyId, ChainNumber>,
    revoked: BTreeMap<u8, Revoked>,
}

impl MapStore {
    /// Returns the chains whose head is in the store.
    #[must_use]
    pub fn chains(&self) -> Vec<ChainRef> {
        let head = |item: &Item| if let Item::Head(chain) = item { Some(*chain) } else { None };
        self.items.keys().filter_map(head).collect()
    }

    /// Returns all stored items.
    pub fn items(&self) -> impl Iterator<Item = (&Item, &[u8])> {
        self.items.iter().map(|(item, bytes)| (item, bytes.as_slice()))
    }

    fn drop_if(&mut self, ends: impl Fn(&Item) -> bool) {
        self.items.retain(|item, _| !ends(item));
    }
}

impl Store for MapStore {
    type Error = Infallible;
    const REPAIRS: bool = true;

    fn keep(&mut self, item: Item, bytes: &[u8]) -> Result<(), Infallible> {
        self.items.insert(item, bytes.to_vec());
        Ok(())
    }

    fn fetch<'b>(&mut self, item: Item, out: &'b mut [u8]) -> Result<Option<&'b [u8]>, Infallible> {
        let Some(bytes) = self.items.get(&item) else { return Ok(None) };
        let Some(out) = out.get_mut(..bytes.len()) else { return Ok(None) };
        out.copy_from_slice(bytes);
        Ok(Some(out))
    }

    fn is_kept(&mut self, item: Item, bytes: &[u8]) -> Result<bool, Infallible> {
        Ok(self.items.get(&item).is_some_and(|kept| kept == bytes))
    }

    fn forget_block(&mut self, chain: ChainRef, block: u32) -> Result<(), Infallible> {
        self.drop_if(|item| matches!(item, Item::Leaf { chain: of, block: at, .. } if (*of, *at) == (chain, block)));
        Ok(())
    }

    fn forget(&mut self, chain: ChainRef) -> Result<(), Infallible> {
        self.drop_if(|item| match item {
            Item::ChainCertificate(of) | Item::Head(of) | Item::Leaf { chain: of, .. } => {
                *of == chain
            }
            Item::Certificate(_) | Item::Revocation(_) => false,
        });
        Ok(())
    }

    fn retire(&mut self, _: ChainRef) -> Result<(), Infallible> {
        Ok(())
    }

    fn raise(&mut self, key: KeyId, number: ChainNumber) -> Result<(), Infallible> {
        self.floors.insert(key, number);
        Ok(())
    }

    fn floor(&mut self, key: KeyId) -> Result<Option<ChainNumber>, Infallible> {
        Ok(self.floors.get(&key).copied())
    }

    fn revoke(&mut self, base: u8, revoked: &Revoked) -> Result<(), Infallible> {
        self.revoked.insert(base, *revoked);
        Ok(())
    }

    fn revoked(&mut self, base: u8) -> Result<Revoked, Infallible> {
        Ok(self.revoked.get(&base).copied().unwrap_or_default())
    }
}
