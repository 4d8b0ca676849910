//! A mote's host side on Linux: import, journal, outbox, replay, push.
