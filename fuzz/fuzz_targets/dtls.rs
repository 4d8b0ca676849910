#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("dtls"), |data: &[u8]| moteseal_fuzz::dtls::run(data));
