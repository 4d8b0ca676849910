#![no_main]

libfuzzer_sys::fuzz_target!(init: moteseal_fuzz::write_seeds("coap"), |data: &[u8]| moteseal_fuzz::coap::run(data));
