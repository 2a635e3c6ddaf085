//! Tells the tests' servers where to be installed, as cargo tells it to tests but not to programs.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    // <target>/<profile>/build/<package>/out
    let target = Path::new(&out).ancestors().nth(4).expect("cargo's layout");
    let place = target.join("tmp");
    println!("cargo::rustc-env=CARGO_TARGET_TMPDIR={}", place.display());
}
