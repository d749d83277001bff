use super::*;
use crate::ras::stand_in::{Server, json};

const PATIENT: RasLimits = RasLimits {
    timeout: Duration::from_mins(1),
    max_bytes: 64 << 10,
};

async fn query(address: SocketAddr, limits: RasLimits) -> Result<Status, RasError> {
    Ok(query_local(address, limits).await?.status)
}

#[tokio::test]
async fn the_status_of_a_job_is_queried_in_json() {
    let answer = json(&[("10.0.0.1", Some(7)), ("10.0.0.2", None)]);
    let address = Server::Json(answer).listen();
    let status = query(address, PATIENT).await.unwrap();
    let comm = &status.comms[0];
    assert_eq!((comm.hash, comm.size, comm.ranks.len()), (0xcafe, 2, 1));
    assert_eq!(comm.missing[0].rank, 1);
}

#[tokio::test]
async fn a_server_without_json_is_queried_in_text() {
    let answer = "Communicators... (0.00s)\n\n    0  1  1  4  4  4  RUNNING  MISMATCH\n\n\
        #0-0 (000000000000cafe) MISMATCH\n  Communicator ranks have different AllReduce operation \
        counts\n  3 ranks have launched up to operation 5\n  Rank 2 has launched up to operation 4 \
        -- GPU 2 managed by process 9 on node 10.0.0.1\n";
    let address = Server::Text(answer.to_owned()).listen();
    let status = query(address, PATIENT).await.unwrap();
    assert_eq!(status.comms[0].ranks.len(), 4);
}

#[tokio::test]
async fn a_server_that_never_replies_is_abandoned() {
    let address = Server::Silent.listen();
    let hasty = RasLimits {
        timeout: Duration::from_millis(20),
        ..PATIENT
    };
    let result = query(address, hasty).await;
    assert!(matches!(result, Err(RasError::TimedOut(_))), "{result:?}");
}

#[tokio::test]
async fn an_answer_without_end_is_cut() {
    let address = Server::Endless.listen();
    let result = query(address, PATIENT).await;
    assert!(
        matches!(result, Err(RasError::TooLarge(65_536))),
        "{result:?}"
    );
}

#[tokio::test]
async fn another_server_on_the_port_is_an_error() {
    let address = Server::Foreign.listen();
    let result = query(address, PATIENT).await;
    assert!(
        matches!(&result, Err(RasError::Protocol { received, .. }) if received.starts_with("HTTP")),
        "{result:?}"
    );
}

#[tokio::test]
async fn an_answer_that_is_not_json_is_an_error() {
    let address = Server::Json("{\"communicators\": 7}".to_owned()).listen();
    let result = query(address, PATIENT).await;
    assert!(matches!(result, Err(RasError::Format(_))), "{result:?}");
}

#[tokio::test]
async fn an_address_from_a_job_is_used_only_if_it_is_on_this_host() {
    let local = |value| listen_address(value).map(|address| address.to_string());
    assert_eq!(local("localhost:3000").unwrap(), "127.0.0.1:3000");
    assert_eq!(local("0.0.0.0:3000").unwrap(), "127.0.0.1:3000");
    assert_eq!(local("127.0.0.9:3000").unwrap(), "127.0.0.9:3000");
    for unusable in ["example.org:80", "localhost", "", ":1"] {
        assert_eq!(local(unusable), None, "{unusable}");
    }
    let elsewhere = listen_address("192.0.2.1:3000").unwrap();
    let result = query_local(elsewhere, PATIENT).await;
    let Err(RasError::Connection(error)) = result else {
        panic!("{result:?}")
    };
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
}

#[tokio::test]
async fn the_hosts_of_a_status_that_are_this_one_are_known() {
    let answer = json(&[("127.0.0.1", Some(7)), ("192.0.2.1", Some(7))]);
    let address = Server::Json(answer).listen();
    let LocalStatus { local_hosts, .. } = query_local(address, PATIENT).await.unwrap();
    assert_eq!(local_hosts, BTreeSet::from(["127.0.0.1".to_owned()]));
}
