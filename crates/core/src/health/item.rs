//! The items of a health record and their groups.

/// How the value of an item changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A count since the node's start, modulo 2^32.
    Total,
    /// A value that rises and falls.
    Gauge,
}

macro_rules! items {
    ($(
        $(#[$group_doc:meta])*
        $group:ident $group_name:literal {
            $( $(#[$doc:meta])* $item:ident $name:literal $kind:ident $unit:literal, )+
        }
    )+) => {
        /// A group of items. A record has the groups in this order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Group {
            $( $(#[$group_doc])* $group, )+
        }

        /// An item of a health record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Item {
            $($( $(#[$doc])* $item, )+)+
        }

        impl Group {
            /// All groups, in their order.
            pub const ALL: &'static [Self] = &[$(Self::$group),+];

            /// Returns the name of the group, which is also the end of its resource's path.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$group => $group_name),+ }
            }
        }

        /// What is known about each item.
        const TABLE: &[(Item, Group, &str, Kind, &str)] =
            &[$($( (Item::$item, Group::$group, $name, Kind::$kind, $unit), )+)+];
        /// The name of each item, with that of its group.
        const FULL_NAMES: &[&str] = &[$($( concat!($group_name, ".", $name), )+)+];
    };
}

items! {
    /// The hardware.
    Device "dev" {
        /// Temperature of the chip, in 0.1 degrees Celsius.
        Temperature "temperature" Gauge "Cel",
        /// Voltage of the battery, in millivolts.
        BatteryMv "battery_mv" Gauge "mV",
        /// Charge of the battery, in percent.
        Battery "battery" Gauge "%",
        /// How far the clock is ahead of the reference, in milliseconds.
        ClockOffset "clock_offset" Gauge "ms",
    }
    /// The link layer.
    Link "link" {
        /// Frames that were too long.
        LinkTooLong "too_long" Total "",
        /// Frames that were too short.
        LinkTooShort "too_short" Total "",
        /// Frames without synchronisation.
        LinkBadSync "bad_sync" Total "",
        /// Frames with a wrong checksum.
        LinkBadCrc "bad_crc" Total "",
        /// Frames sent.
        LinkSent "sent" Total "",
        /// Frames received.
        LinkReceived "received" Total "",
        /// Collisions.
        LinkCollisions "collisions" Total "",
        /// Frames sent again.
        LinkRetransmitted "retransmitted" Total "",
        /// Strength of the last received signal, in dBm.
        Rssi "rssi" Gauge "dBm",
        /// Quality of the last received frame, from 0 to 255.
        Lqi "lqi" Gauge "",
    }
    /// The Internet Protocol.
    Ip "ip" {
        /// Datagrams received.
        IpReceived "received" Total "",
        /// Datagrams sent.
        IpSent "sent" Total "",
        /// Datagrams forwarded.
        IpForwarded "forwarded" Total "",
        /// Datagrams dropped.
        IpDropped "dropped" Total "",
    }
    /// ICMP.
    Icmp "icmp" {
        /// Messages received.
        IcmpReceived "received" Total "",
        /// Messages dropped.
        IcmpDropped "dropped" Total "",
        /// Messages sent.
        IcmpSent "sent" Total "",
    }
    /// UDP.
    Udp "udp" {
        /// Datagrams received.
        UdpReceived "received" Total "",
        /// Datagrams sent.
        UdpSent "sent" Total "",
        /// Datagrams dropped.
        UdpDropped "dropped" Total "",
        /// Datagrams with a wrong checksum.
        UdpBadChecksum "bad_checksum" Total "",
    }
    /// TCP.
    Tcp "tcp" {
        /// Segments received.
        TcpReceived "received" Total "",
        /// Segments sent.
        TcpSent "sent" Total "",
        /// Segments dropped.
        TcpDropped "dropped" Total "",
        /// Resets.
        TcpReset "reset" Total "",
        /// Segments with a wrong acknowledgement.
        TcpAckErrors "ack_errors" Total "",
        /// Segments with a wrong checksum.
        TcpBadChecksum "bad_checksum" Total "",
        /// Segments sent again.
        TcpRetransmitted "retransmitted" Total "",
        /// Connection requests dropped because there were too many.
        TcpSynDrops "syn_drops" Total "",
        /// Connection requests to closed ports.
        TcpSynResets "syn_resets" Total "",
    }
    /// IPv6 neighbour discovery.
    Nd6 "nd6" {
        /// Messages sent.
        Nd6Sent "sent" Total "",
        /// Messages received.
        Nd6Received "received" Total "",
        /// Messages dropped.
        Nd6Dropped "dropped" Total "",
    }
    /// What waits for the next node, and what was lost.
    Queue "queue" {
        /// Seals, epochs or uploads that wait.
        Waiting "waiting" Gauge "",
        /// Urgent events that wait.
        UrgentWaiting "urgent_waiting" Gauge "",
        /// Readings or events taken.
        Readings "readings" Total "",
        /// Readings given up.
        GivenUp "given_up" Total "",
        /// Readings or frames refused.
        Refused "refused" Total "",
        /// Time since the next node last acknowledged something, in seconds.
        Acknowledged "acknowledged" Gauge "s",
    }
}

/// The number of groups.
pub const GROUPS: usize = Group::ALL.len();
/// The number of items.
pub const ITEMS: usize = TABLE.len();

// `Health` has a bit for each item.
const _: () = assert!(ITEMS <= 64);

impl Item {
    /// Returns all items, in their order.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        TABLE.iter().map(|(item, ..)| *item)
    }

    /// Returns the place of the item among all.
    #[must_use]
    pub const fn place(self) -> usize {
        self as usize
    }

    /// Returns the group.
    #[must_use]
    pub const fn group(self) -> Group {
        TABLE[self.place()].1
    }

    /// Returns the name, which is unique within its group.
    #[must_use]
    pub const fn name(self) -> &'static str {
        TABLE[self.place()].2
    }

    /// Returns the name with that of the group before it, which is unique: `link.bad_crc`.
    #[must_use]
    pub const fn full_name(self) -> &'static str {
        FULL_NAMES[self.place()]
    }

    /// Returns how the value changes.
    #[must_use]
    pub const fn kind(self) -> Kind {
        TABLE[self.place()].3
    }

    /// Returns the unit; the empty string for counts. The temperature is in tenths of it.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        TABLE[self.place()].4
    }

    /// Returns by how much a value is divided for its unit.
    #[must_use]
    pub const fn divisor(self) -> u32 {
        if matches!(self, Self::Temperature) { 10 } else { 1 }
    }

    /// Returns whether a larger value, or a value that rises faster, means that something is lost or
    /// fails. [`Reporter`](super::Reporter) watches these items on hosts.
    #[must_use]
    pub const fn is_fault(self) -> bool {
        !matches!(
            self,
            Self::LinkSent
                | Self::LinkReceived
                | Self::IpReceived
                | Self::IpSent
                | Self::IpForwarded
                | Self::IcmpReceived
                | Self::IcmpSent
                | Self::UdpReceived
                | Self::UdpSent
                | Self::TcpReceived
                | Self::TcpSent
                | Self::Nd6Sent
                | Self::Nd6Received
                | Self::Readings
        ) && matches!(self.kind(), Kind::Total)
    }

    /// Returns the total that counts this one too, so that a sum does not count a loss twice.
    #[must_use]
    pub const fn counted_in(self) -> Option<Self> {
        match self {
            Self::UdpBadChecksum => Some(Self::UdpDropped),
            Self::TcpBadChecksum => Some(Self::TcpDropped),
            _ => None,
        }
    }

    /// Returns the item with a name, with or without its group before it: `link.bad_crc`, or `bad_crc`
    /// because no other group has an item of that name. Returns `None` if there is no such item, or if
    /// several groups have one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some((group, name)) = text.split_once('.') {
            return Self::all().find(|item| item.group().name() == group && item.name() == name);
        }
        let is_named = |item: &Self| item.name() == text;
        Self::all().find(is_named).filter(|item| Self::all().rfind(is_named) == Some(*item))
    }
}

impl Group {
    /// Returns the items of the group, in their order.
    pub fn items(self) -> impl DoubleEndedIterator<Item = Item> {
        Item::all().filter(move |item| item.group() == self)
    }

    /// Returns the place of the group's first item among all items.
    #[must_use]
    pub fn first(self) -> usize {
        self.items().next().map_or(0, Item::place)
    }
}
