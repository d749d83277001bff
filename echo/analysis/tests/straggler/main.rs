//! The straggler detector against recordings of real jobs and generated loops.

mod recording;
mod score;
mod table;
