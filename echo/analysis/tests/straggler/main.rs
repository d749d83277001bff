//! The straggler detector against recordings of real jobs and generated loops.
#![cfg(test)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::suboptimal_flops,
    reason = "sizes and times of tests are small, and formulas are to be read"
)]

mod fault;
mod generated;
mod in_a_row;
mod loops;
mod machine;
mod noise;
mod recording;
mod scale;
mod score;
mod shape;
mod table;
