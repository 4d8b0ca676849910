//! The schemes the papers compare with: nothing a product needs.
