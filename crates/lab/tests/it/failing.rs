//! A store that fails on request.
use moteseal_broadcast::recovery::{Item, Store};
use moteseal_broadcast::{ChainNumber, ChainRef, KeyId, Revoked};
use moteseal_lab::radio::MapStore;

/// A store in which one call fails. `R` states whether it permits repairs.
#[derive(Default)]
pub(crate) struct Failing<const R: bool = false> {
    pub(crate) inner: MapStore,
    /// The number of calls that succeed before one fails; `None` if no further call fails.
    pub(crate) left: Option<usize>,
}

impl<const R: bool> Failing<R> {
    fn count_call(&mut self) -> Result<(), &'static str> {
        match &mut self.left {
            Some(0) => {
                self.left = None;
                Err("no power")
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl<const R: bool> Store for Failing<R> {
    type Error = &'static str;
    const REPAIRS: bool = R;

    fn keep(&mut self, item: Item, bytes: &[u8]) -> Result<(), Self::Error> {
        self.count_call()?;
        let Ok(()) = self.inner.keep(item, bytes);
        Ok(())
    }

    fn fetch<'b>(
        &mut self,
        item: Item,
        out: &'b mut [u8],
    ) -> Result<Option<&'b [u8]>, Self::Error> {
        self.count_call()?;
        let Ok(found) = self.inner.fetch(item, out);
        Ok(found)
    }

    fn is_kept(&mut self, item: Item, bytes: &[u8]) -> Result<bool, Self::Error> {
        self.count_call()?;
        let Ok(is_kept) = self.inner.is_kept(item, bytes);
        Ok(is_kept)
    }

    fn forget_block(&mut self, chain: ChainRef, block: u32) -> Result<(), Self::Error> {
        self.count_call()?;
        let Ok(()) = self.inner.forget_block(chain, block);
        Ok(())
    }

    fn forget(&mut self, chain: ChainRef) -> Result<(), Self::Error> {
        self.count_call()?;
        let Ok(()) = self.inner.forget(chain);
        Ok(())
    }

    fn retire(&mut self, chain: ChainRef) -> Result<(), Self::Error> {
        self.count_call()?;
        let Ok(()) = self.inner.retire(chain);
        Ok(())
    }

    fn raise(&mut self, key: KeyId, number: ChainNumber) -> Result<(), Self::Error> {
        self.count_call()?;
        let Ok(()) = self.inner.raise(key, number);
        Ok(())
    }

    fn floor(&mut self, key: KeyId) -> Result<Option<ChainNumber>, Self::Error> {
        self.count_call()?;
        let Ok(floor) = self.inner.floor(key);
        Ok(floor)
    }

    fn revoke(&mut self, base: u8, revoked: &Revoked) -> Result<(), Self::Error> {
        self.count_call()?;
        let Ok(()) = self.inner.revoke(base, revoked);
        Ok(())
    }

    fn revoked(&mut self, base: u8) -> Result<Revoked, Self::Error> {
        self.count_call()?;
        let Ok(revoked) = self.inner.revoked(base);
        Ok(revoked)
    }
}
