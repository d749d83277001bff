//! Integration tests of the agent: recordings in, batches out.

#[cfg(test)]
mod attached;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod cli;
#[cfg(test)]
mod collect;
#[cfg(test)]
mod collector;
#[cfg(test)]
mod delivery;
#[cfg(test)]
mod evidence;
#[cfg(test)]
mod files;
#[cfg(test)]
mod gpu_rows;
#[cfg(test)]
mod health;
#[cfg(test)]
mod recordings;
#[cfg(test)]
mod secured;
#[cfg(test)]
mod simulate;
#[cfg(test)]
mod spool;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod verdicts;
