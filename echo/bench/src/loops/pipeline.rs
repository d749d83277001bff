//! Pipeline stages: one forward and one backward pass at a time, with messages in pairs.

use super::step::{Action, Function, Operation};
use super::writer::Writer;

/// Elements that one stage passes to the next.
const ACTIVATIONS: u64 = 1_048_576;

/// Writes one step of one stage.
pub fn write(writer: &mut Writer<'_>) {
    let (stages, stage, microbatches) = (writer.shape.n_ranks, writer.rank, writer.shape.n_ops);
    let ahead = (stages - 1 - stage).min(microbatches);
    let neighbours = Neighbours {
        before: stage.checked_sub(1),
        behind: Some(stage + 1).filter(|next| *next < stages),
    };
    let share = 0.85 / f64::from(microbatches + stages - 1);
    let forward = |writer: &mut Writer<'_>| pass(writer, share / 3.0, stage == 0);
    let backward = |writer: &mut Writer<'_>| pass(writer, share * 2.0 / 3.0, false);
    for _ in 0..ahead {
        messages(writer, &[neighbours.take_input()]);
        forward(writer);
        messages(writer, &[neighbours.give_output()]);
    }
    let steady = microbatches - ahead;
    if steady > 0 {
        messages(writer, &[neighbours.take_input()]);
    }
    for nth in 1..=steady {
        forward(writer);
        messages(
            writer,
            &[neighbours.give_output(), neighbours.take_gradient()],
        );
        backward(writer);
        if nth == steady {
            messages(writer, &[neighbours.give_gradient()]);
        } else {
            messages(
                writer,
                &[neighbours.give_gradient(), neighbours.take_input()],
            );
        }
    }
    for _ in 0..ahead {
        messages(writer, &[neighbours.take_gradient()]);
        backward(writer);
        messages(writer, &[neighbours.give_gradient()]);
    }
    writer.host(0.02);
    writer.kernel(0.08);
    writer.push(Action::MarkStep);
    writer.push(Action::Synchronize);
}

/// Writes one microbatch in one direction.
fn pass(writer: &mut Writer<'_>, share: f64, loads: bool) {
    if loads {
        writer.load(share * 0.2);
    }
    writer.host(share * 0.4);
    writer.push(Action::Join);
    writer.kernel(share);
}

type Message = Option<(Function, u32)>;

/// Neighbouring stages.
#[derive(Debug, Clone, Copy)]
struct Neighbours {
    before: Option<u32>,
    behind: Option<u32>,
}

impl Neighbours {
    fn take_input(self) -> Message {
        self.before.map(|peer| (Function::Recv, peer))
    }

    fn give_output(self) -> Message {
        self.behind.map(|peer| (Function::Send, peer))
    }

    fn take_gradient(self) -> Message {
        self.behind.map(|peer| (Function::Recv, peer))
    }

    fn give_gradient(self) -> Message {
        self.before.map(|peer| (Function::Send, peer))
    }
}

/// Writes messages that are exchanged together; a missing neighbour has none.
fn messages(writer: &mut Writer<'_>, wanted: &[Message]) {
    let operation = |(function, peer): &(Function, u32)| Operation {
        function: *function,
        count: ACTIVATIONS,
        peer: *peer,
        transfer_ms: 0.2,
    };
    let ops: Vec<Operation> = wanted.iter().flatten().map(operation).collect();
    if !ops.is_empty() {
        writer.push(Action::Exchange {
            ops,
            after_kernels: true,
        });
    }
}
