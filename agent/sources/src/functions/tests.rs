use std::collections::BTreeSet;

use fleet_agent_core::event::Direction;

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
fn counted_functions_have_no_return_probe_unless_they_are_measured() {
    for function in FUNCTIONS {
        let counts = match function.effect {
            Effect::AcknowledgesEvent | Effect::Records => true,
            Effect::Copies | Effect::Launches | Effect::LaunchesGraph => !matches!(
                function.probe_when,
                ProbeWhen::MeasuredCopies | ProbeWhen::MeasuredLaunches
            ),
            _ => false,
        };
        assert_eq!(counts, !function.returns(), "{}", function.name);
        assert!(function.measured().returns(), "{}", function.name);
    }
}

#[test]
fn only_calls_that_issue_or_wait_make_a_process_a_rank() {
    let is_runtime = |function: &Function| function.flags & (flag::RUNTIME | flag::COUNTS) != 0;
    for function in FUNCTIONS {
        let is_of_nccl = function.family == Family::Collectives;
        let waits = function.effect == Effect::Waits;
        assert_eq!(
            is_runtime(&function),
            !is_of_nccl && !waits,
            "{}",
            function.name
        );
    }
}

#[test]
fn a_runtime_and_the_driver_that_it_calls_are_one_class() {
    let class = |name: &str| by_name(name).unwrap().cookie(0).to_bits() >> 8 & 0xff;
    for (runtime, driver) in [
        ("cudaMalloc", "cuMemAlloc_v2"),
        ("cudaFreeAsync", "cuMemFreeAsync"),
        ("cudaMemcpyAsync", "cuMemcpyHtoDAsync_v2"),
        ("cudaLaunchKernelExC", "cuLaunchKernelEx"),
        ("cudaGraphLaunch", "cuGraphLaunch"),
        ("cudaGraphInstantiate", "cuGraphInstantiateWithFlags"),
    ] {
        assert_eq!(class(runtime), class(driver), "{runtime}");
    }
    assert_ne!(class("cudaMalloc"), class("cudaFree"));
}

#[test]
fn the_direction_of_a_copy_is_in_its_argument_or_in_its_name() {
    let direction = |name: &str| by_name(name).unwrap().direction(2);
    assert_eq!(direction("cudaMemcpy"), Some(Direction::ToHost));
    assert_eq!(direction("cuMemcpyHtoD_v2"), Some(Direction::ToDevice));
    assert_eq!(direction("cudaMalloc"), None);
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
