//! Compiles the protocols with a pure Rust compiler, so that no `protoc` has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const FILES: [&str; 2] = ["proto/nvhcd.proto", "proto/health_event.proto"];
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(FILES, ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
