//! The straggler detector against recordings of real jobs and generated loops.

mod generated;
mod loops;
mod machine;
mod recording;
mod score;
mod table;
