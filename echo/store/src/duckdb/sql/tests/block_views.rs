//! Views of blocks of operations: their classes and what the host did meanwhile.

use std::sync::Arc;

use echo_core::model::event::{Event, Reading};

use super::Lab;
use crate::EventStore;
use crate::contract::sample::{batch, gauge, origin, wait};

/// Returns a number about the same block as a waiting time.
fn of_block(metric: &str, rank: i64, value: f64, attrs: &str) -> Event {
    let origin = origin("prod", "node-1", rank);
    Event {
        block: wait(&origin, 9_000).block,
        attrs: Arc::from(attrs),
        ..gauge(&origin, metric, 9_000, Reading::Double(value))
    }
}

fn elapsed(rank: i64, mix: &str) -> Event {
    let attrs = format!(r#"{{"fleet.mix":"{mix}","nccl.comm_nranks":8,"nccl.comm_rank":3}}"#);
    of_block("fleet.rank.elapsed_ms", rank, 40.0, &attrs)
}

async fn rows(lab: &Lab, sql: &str) -> Vec<String> {
    let table = lab.run(sql).await.unwrap();
    let rows = table.rows.iter();
    rows.map(|row| {
        let cells: Vec<String> = row.iter().map(ToString::to_string).collect();
        cells.join(" ").replace('"', "")
    })
    .collect()
}

#[tokio::test]
async fn operations_are_listed_by_class_with_data_type_bytes_and_ranks_and_join_retransmissions() {
    let lab = Lab::new().await;
    let retransmits = |rank, n| of_block("fleet.host.tcp_retransmits", rank, n, "{}");
    let events = vec![
        elapsed(1, "AllReduce.7.21=90 AllGather.9.4=2 other=5"),
        elapsed(2, "AllReduce.7.21=90"),
        retransmits(1, 0.0),
        retransmits(2, 17.0),
    ];
    lab.store.append(batch(2, events)).await.unwrap();
    let classes = "SELECT op, n_ops, datatype, bytes, comm_rank, comm_nranks FROM operation_classes \
         WHERE rank = 1 ORDER BY op";
    assert_eq!(
        rows(&lab, classes).await,
        [
            "AllGather 2 bfloat16 32 3 8",
            "AllReduce 90 float32 8388608 3 8",
            "other 5 null null 3 8",
        ]
    );
    let joined = "SELECT rank, node_id, sum(n.n_ops * n.bytes)::BIGINT, any_value(t.retransmits)::BIGINT \
         FROM operation_classes n JOIN collectives c USING (cluster_id, node_id, rank, comm_id) \
         JOIN tcp_retransmits t USING (cluster_id, node_id, rank, comm_id) \
         WHERE n.op = 'AllReduce' AND c.seq_first = t.seq_first AND c.seq_last = t.seq_last \
         AND n.seq_first <= c.seq_last AND c.seq_first <= n.seq_last AND c.timestamp_ns = t.timestamp_ns \
         GROUP BY ALL ORDER BY rank";
    let waits = [1, 2].map(|rank| wait(&origin("prod", "node-1", rank), 9_000));
    lab.store.append(batch(3, waits.to_vec())).await.unwrap();
    assert_eq!(
        rows(&lab, joined).await,
        ["1 node-1 754974720 0", "2 node-1 754974720 17"]
    );
}

#[tokio::test]
async fn a_malformed_class_has_no_size_and_breaks_no_statement() {
    let lab = Lab::new().await;
    let huge =
        "AllReduce.7.4000000000=1 AllReduce.99.3=x Reduce.-1.2=99999999999999999999999 . = ..=";
    let many = vec!["A.7.1=1"; 400].join(" ");
    let events = vec![elapsed(1, huge), elapsed(2, &many), elapsed(3, "")];
    let plain = of_block("fleet.rank.elapsed_ms", 4, 1.0, "{}");
    lab.store
        .append(batch(2, [events, vec![plain]].concat()))
        .await
        .unwrap();
    let counts = "SELECT rank, count(*)::BIGINT, count(bytes)::BIGINT FROM operation_classes \
         GROUP BY rank ORDER BY rank";
    assert_eq!(rows(&lab, counts).await, ["1 6 0", "2 32 32"]);
}
