//! Atomics of the tables: those of the standard library or, when a model is checked, those of loom,
//! which tries every interleaving and every value that the memory model permits.

#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(all(test, loom))]
pub(crate) use self::model::{AtomicU32, AtomicU64, Ordering};

#[cfg(all(test, loom))]
mod model {
    use std::fmt;
    use std::ops::Deref;
    use std::sync::OnceLock;

    pub(crate) use loom::sync::atomic::Ordering;

    /// Defines an atomic of loom that a constant can hold: it is created at the first use.
    macro_rules! atomic {
        ($name:ident, $int:ty) => {
            pub(crate) struct $name {
                initial: $int,
                atomic: OnceLock<loom::sync::atomic::$name>,
            }

            impl $name {
                pub(crate) const fn new(initial: $int) -> Self {
                    Self {
                        initial,
                        atomic: OnceLock::new(),
                    }
                }
            }

            impl Deref for $name {
                type Target = loom::sync::atomic::$name;

                fn deref(&self) -> &Self::Target {
                    let create = || loom::sync::atomic::$name::new(self.initial);
                    self.atomic.get_or_init(create)
                }
            }

            impl Default for $name {
                fn default() -> Self {
                    Self::new(0)
                }
            }

            impl fmt::Debug for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    fmt::Debug::fmt(&**self, f)
                }
            }
        };
    }

    atomic!(AtomicU32, u32);
    atomic!(AtomicU64, u64);
}
