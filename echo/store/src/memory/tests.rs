//! That the store in memory keeps the contract.

use super::MemoryStore;

crate::contract::keeps_the_contract!((MemoryStore::new(), ()));
