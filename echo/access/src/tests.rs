use std::io;
use std::path::{Path, PathBuf};

use echo_core::ids::ClusterId;

use crate::signed;
use crate::{Access, AccessError, Principal};

mod claims;
mod file;
mod jwt;
mod opaque;

fn no_files(_path: &Path) -> io::Result<Vec<u8>> {
    Err(io::Error::from(io::ErrorKind::NotFound))
}

fn without_files(yaml: &str) -> Result<Access, AccessError> {
    Access::parse(yaml, &no_files)
}

fn cluster(name: &str) -> ClusterId {
    name.parse().unwrap()
}

/// Describes the permissions of a caller on one line.
fn describe(principal: &Principal) -> String {
    let clusters = ["prod", "lab-1"];
    let of = |allows: &dyn Fn(&ClusterId) -> bool| {
        let allowed = clusters.iter().filter(|name| allows(&cluster(name)));
        allowed.copied().collect::<Vec<&str>>().join("+")
    };
    let query = principal.query.as_ref().map_or_else(String::new, |query| {
        let tools = ["fleet.cluster.get_cost", "fleet.cluster.run_analysis"];
        let tools = tools.iter().filter(|tool| query.tools.allows(tool)).count();
        let sql = if query.sql { " sql" } else { "" };
        let clusters = of(&|cluster| query.clusters.allows(cluster));
        format!(" query({clusters}, {tools} tools{sql})")
    });
    let write = principal.write.as_ref().map_or_else(String::new, |write| {
        let node = write.node.as_ref().map(|node| format!(" of {node}"));
        let clusters = of(&|cluster| write.clusters.allows(cluster));
        format!(" write({clusters}{})", node.unwrap_or_default())
    });
    let kind = principal.kind.name();
    format!("{} {kind}:{query}{write}", principal.id)
}

#[test]
fn callers_of_an_unauthenticated_listener_have_all_permissions() {
    let local = Principal::local();
    assert_eq!(
        describe(&local),
        "local local: query(prod+lab-1, 2 tools sql) write(prod+lab-1)"
    );
    assert_eq!(local.not_after, None);
}

#[test]
fn key_file_paths_are_kept_as_written() {
    let idps = signed::every_form();
    for idp in &idps {
        let named = idp.access("").files().to_vec();
        assert_eq!(named, [PathBuf::from(idp.file_name)]);
    }
}
