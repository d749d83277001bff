//! That the store in memory keeps the contract.

use super::MemoryStore;

crate::store::contract::keeps_the_contract!((MemoryStore::new(), ()));
