use std::collections::BTreeSet;

use super::*;

#[test]
fn no_function_is_listed_twice() {
    let names: BTreeSet<&str> = FUNCTIONS.iter().map(|function| function.name).collect();
    assert_eq!(names.len(), FUNCTIONS.len());
}

#[test]
fn a_call_that_created_no_communicator_is_not_reported() {
    let op = FUNCTIONS
        .iter()
        .position(|function| function.effect == Effect::MakesComm);
    let record = CallRecord {
        op: u8::try_from(op.unwrap()).unwrap(),
        result: 1,
        ..CallRecord::default()
    };
    assert_eq!(call_kind(&record), None);
}

#[test]
fn counted_functions_have_no_return_probe() {
    for function in FUNCTIONS {
        let counts = matches!(
            function.effect,
            Effect::Copies
                | Effect::Launches
                | Effect::LaunchesGraph
                | Effect::AcknowledgesEvent
                | Effect::Records
        );
        assert_eq!(counts, !function.returns(), "{}", function.name);
    }
}

#[test]
fn collectives_have_a_sequence_number_and_transfers_do_not() {
    for function in FUNCTIONS {
        if let Effect::Operation(op) = function.effect {
            assert_eq!(
                function.flags & flag::SEQUENCE != 0,
                op.is_collective(),
                "{}",
                function.name
            );
        }
    }
}
