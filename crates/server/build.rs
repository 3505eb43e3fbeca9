//! How the static binary is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Relative relocations in their packed form: 0.7 MB less in a container image. musl understands them since 1.2.4,
    // and Rust brings 1.2.5.
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "musl") {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
