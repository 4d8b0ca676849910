//! What the header says of sizes, held to what the compiler makes of them: on this target here, and in C by the static assertions that
//! `moteseal-header` writes from these lines. Sizes and alignments in bytes, first where pointers have 64 bits, then where they have 32.

macro_rules! layout {
    ($($name:ident: $wide:literal or $narrow:literal, align $align:literal or $narrow_align:literal;)+) => {
        $(const _: () = {
            assert!(size_of::<crate::$name>() == if size_of::<usize>() == 8 { $wide } else { $narrow }, stringify!($name));
            assert!(align_of::<crate::$name>() == if size_of::<usize>() == 8 { $align } else { $narrow_align }, stringify!($name));
        };)+
    };
}

layout! {
    moteseal_device: 144 or 144, align 8 or 8;
    moteseal_chain: 128 or 128, align 8 or 8;
    moteseal_signing_key: 256 or 256, align 8 or 8;
    moteseal_star8: 1056 or 1056, align 8 or 8;
    moteseal_star16: 1952 or 1952, align 8 or 8;
    moteseal_star32: 3744 or 3744, align 8 or 8;
    moteseal_tree10: 592 or 592, align 8 or 8;
    moteseal_tree20: 912 or 912, align 8 or 8;
    moteseal_answers: 336 or 336, align 8 or 8;
    moteseal_seal: 928 or 928, align 8 or 8;
    moteseal_sum_source: 72 or 72, align 8 or 8;
    moteseal_sum_key: 88 or 88, align 8 or 8;
    moteseal_guard: 336 or 336, align 8 or 8;
    moteseal_permit: 48 or 48, align 8 or 8;
    moteseal_base: 224 or 224, align 8 or 8;
    moteseal_sender: 240 or 240, align 8 or 8;
    moteseal_broadcast8: 816 or 816, align 8 or 8;
    moteseal_broadcast32: 1968 or 1968, align 8 or 8;
    moteseal_broadcast64: 3504 or 3504, align 8 or 8;
    moteseal_frame: 56 or 40, align 8 or 8;
    moteseal_head_info: 48 or 40, align 8 or 8;
    moteseal_taken: 24 or 16, align 8 or 4;
    moteseal_said: 48 or 32, align 8 or 8;
    moteseal_seal_info: 56 or 56, align 8 or 8;
}
