//! Test of `moteseal-demo sums`: every honest sum is exact, and every altered sum is rejected and
//! traced to the gateway that altered it. The program checks this itself and reports it by its exit
//! code.

use std::process::Command;

#[test]
fn every_sum_is_exact_or_traced_to_the_gateway_that_altered_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_moteseal-demo")).arg("sums").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("gw-b"), "{printed}");
    assert!(printed.contains("TooFewReadings"), "{printed}");
    assert!(printed.contains("EpochNotPermitted"), "{printed}");
}
