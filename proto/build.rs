//! Compiles `policy.proto` with a pure Rust compiler, so that no `protoc` has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const POLICY: &str = "proto/fleet/v1/policy.proto";
    println!("cargo::rerun-if-changed={POLICY}");
    let descriptors = protox::compile([POLICY], ["proto"])?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
