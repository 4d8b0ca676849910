//! Compares the sizes that the header states with the sizes that the compiler uses. This module
//! compares them for the Rust target. In C, static assertions in the header compare them;
//! `moteseal-header` generates these assertions from the lines below. Sizes and alignments are in
//! bytes, first for 64-bit pointers, then for 32-bit pointers.

use crate::boundary::Storage;

macro_rules! layout {
    ($($name:ident: $wide:literal or $narrow:literal, align $align:literal or $narrow_align:literal;)+) => {
        $(const _: () = {
            assert!(size_of::<crate::$name>() == if size_of::<usize>() == 8 { $wide } else { $narrow }, stringify!($name));
            assert!(align_of::<crate::$name>() == if size_of::<usize>() == 8 { $align } else { $narrow_align }, stringify!($name));
        };)+
    };
}

layout! {
    moteseal_device: 160 or 160, align 8 or 8;
    moteseal_chain: 128 or 128, align 8 or 8;
    moteseal_signing_key: 256 or 256, align 8 or 8;
    moteseal_answers: 336 or 336, align 8 or 8;
    moteseal_seal: 1200 or 1200, align 8 or 8;
    moteseal_sum_source: 72 or 72, align 8 or 8;
    moteseal_sum_key: 88 or 88, align 8 or 8;
    moteseal_guard: 336 or 336, align 8 or 8;
    moteseal_permit: 48 or 48, align 8 or 8;
    moteseal_base: 224 or 224, align 8 or 8;
    moteseal_sender: 240 or 240, align 8 or 8;
    moteseal_frame: 56 or 40, align 8 or 8;
    moteseal_head_info: 64 or 56, align 8 or 8;
    moteseal_taken: 24 or 16, align 8 or 4;
    moteseal_single: 64 or 48, align 8 or 8;
    moteseal_seal_info: 56 or 56, align 8 or 8;
}

macro_rules! storage {
    ($($name:ident: $macro:ident($parameter:ident) = $fixed:literal + $each:literal;)+) => {
        $(const _: () = {
            assert!(<crate::$name as Storage>::FIXED == $fixed, stringify!($macro));
            assert!(size_of::<<crate::$name as Storage>::Element>() == $each, stringify!($macro));
        };)+
    };
}

storage! {
    moteseal_star: MOTESEAL_STAR_SIZE(levels) = 104 + 112;
    moteseal_grouped_star: MOTESEAL_GROUPED_STAR_SIZE(digests) = 504 + 112;
    moteseal_tree: MOTESEAL_TREE_SIZE(height) = 224 + 32;
    moteseal_column_keys: MOTESEAL_COLUMN_KEYS_SIZE(columns) = 48 + 1088;
    moteseal_cipher: MOTESEAL_CIPHER_SIZE(columns) = 464 + 120;
    moteseal_broadcast: MOTESEAL_BROADCAST_SIZE(block) = 328 + 48;
}
