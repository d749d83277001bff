use super::*;
use crate::event::Op;

fn init(nranks: u32, unique_id: u64) -> CommInit {
    CommInit {
        nranks,
        rank: 0,
        unique_id,
        comm: None,
    }
}

/// Issues a collective; returns its communicator.
fn id_of(table: &mut CommTable, tid: u32, pointer: u64) -> Option<u64> {
    let Some(index) = table.find(tid, pointer) else {
        table.count_unknown(&Operation {
            op: Op::AllReduce,
            count: 8,
            datatype: 7,
            comm: pointer,
            seq: None,
            peer: None,
        });
        return None;
    };
    Some(table.comms()[index.position()].id.to_bits())
}

#[test]
fn pointers_are_matched_in_the_order_of_the_inits() {
    let mut table = CommTable::default();
    table.record_init(1, init(4, 10));
    table.record_init(1, init(2, 20));
    assert_eq!(id_of(&mut table, 1, 0xa), Some(10));
    assert_eq!(id_of(&mut table, 1, 0xb), Some(20));
    assert_eq!(id_of(&mut table, 9, 0xa), Some(10));
}

#[test]
fn a_pointer_first_used_by_the_thread_of_an_init_belongs_to_it() {
    let mut table = CommTable::default();
    table.record_init(1, init(4, 10));
    table.record_init(2, init(2, 20));
    assert_eq!(id_of(&mut table, 2, 0xb), Some(20));
    assert_eq!(id_of(&mut table, 2, 0xa), Some(10));
}

#[test]
fn a_communicator_of_one_rank_takes_its_pointer_and_is_ignored() {
    let mut table = CommTable::default();
    table.record_init(1, init(1, 10));
    table.record_init(1, init(2, 20));
    assert_eq!(id_of(&mut table, 1, 0xa), None);
    assert_eq!(id_of(&mut table, 1, 0xb), Some(20));
    assert_eq!(table.unknown_ops(), 0);
}

#[test]
fn a_pointer_without_an_init_is_counted() {
    let mut table = CommTable::default();
    assert_eq!(id_of(&mut table, 1, 0xa), None);
    assert_eq!(table.unknown_ops(), 1);
}

#[test]
fn a_new_communicator_is_not_confused_with_one_created_before_tracing_began() {
    let mut table = CommTable::default();
    assert_eq!(id_of(&mut table, 1, 0xa), None);
    table.record_init(1, init(4, 20));
    assert_eq!(id_of(&mut table, 1, 0xa), None);
    assert_eq!(id_of(&mut table, 1, 0xb), Some(20));
    assert_eq!(table.unknown_ops(), 2);
}

#[test]
fn a_pointer_known_to_the_source_is_used() {
    let mut table = CommTable::default();
    let known = |unique_id, pointer| CommInit {
        comm: Some(pointer),
        ..init(4, unique_id)
    };
    table.record_init(1, known(10, 0xa));
    table.record_init(1, known(20, 0xb));
    assert_eq!(id_of(&mut table, 1, 0xb), Some(20));
    assert_eq!(id_of(&mut table, 1, 0xa), Some(10));
    // The pointer was reused; the destruction of the first communicator was not recorded.
    table.record_init(1, known(30, 0xa));
    assert_eq!(id_of(&mut table, 1, 0xa), Some(30));
}

#[test]
fn a_pointer_can_be_reused_after_its_communicator_was_destroyed() {
    let mut table = CommTable::default();
    table.record_init(1, init(4, 10));
    assert_eq!(id_of(&mut table, 1, 0xa), Some(10));
    table.remove(0xa);
    table.record_init(1, init(4, 20));
    assert_eq!(id_of(&mut table, 1, 0xa), Some(20));
}
