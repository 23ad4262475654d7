-- What Wireshark and tshark do not show of RoCEv2: FECN and BECN, CNPs, opcodes of the testbed's own, whether the ICRC is
-- right, and packets that are sent again. Everything else is shown by Wireshark's own dissector (infiniband.*).
--
--   tshark -X lua_script:images/wireshark/roce.lua -r capture.pcap
--   wireshark -X lua_script:images/wireshark/roce.lua capture.pcap
--
-- or copy this file into the folder "Personal Lua Plugins" of Help > About Wireshark > Folders.
-- Tried with Wireshark 4.0.17 (Lua 5.2); it uses nothing that Lua 5.4 (Wireshark 4.4 and later) has not.
--
-- Useful display filters:
--
--   roce.opcode == 0x81          congestion notification packets (CNP)
--   roce.retransmitted == 1      the PSN was seen before on its way to that queue pair
--   roce.icrc_good == 0          the ICRC is not that of what is there
--   roce.icrc_unnumbered         it is that of IPv4 identification 0: the kernel has cut the packet from a run, and
--                                numbered it (UDP_SEGMENT); endpoints of the testbed take it, adapters do not
--   roce.opcode == 0xc1          an initiator of dynamic connections attaches to a target
--   roce.selective_psns          selective acknowledgements, and what they say has arrived
--
-- A Wireshark that has the name "roce" taken gets "roce_testbed" instead. The names of fields are those of
-- `testbed decode --json`, which says of a right ICRC for which identification it is.
--
-- Source: InfiniBand Architecture Specification, volume 1, release 1.4, sections 7.8.1 (ICRC), 9.2 (BTH) and annex A17.

local UDP_PORT = 4791
local BTH_BYTES = 12
local ICRC_BYTES = 4
local PSN_SPACE = 0x1000000
-- Of each flow, the latest; a packet that is repeated later than that counts as new.
local REMEMBERED_PSNS = 65536

local PREFIX = "roce"
local free, roce = pcall(Proto, PREFIX, "RoCEv2, what the testbed adds")
if not free then
  PREFIX = "roce_testbed"
  roce = Proto(PREFIX, "RoCEv2, what the testbed adds")
end

-- The library of bit operations that this Wireshark has; without one the ICRC is not checked.
local bits = rawget(_G, "bit") or rawget(_G, "bit32")

local CNP = 0x81
local SELECTIVE_ACKNOWLEDGE = 0xC0
-- Of dynamic connections, whose wire format is not public: an initiator attaches to a target and detaches, and a target
-- has nothing that a packet belongs to.
local DC_CONNECT, DC_DISCONNECT, DC_UNATTACHED = 0xC1, 0xC2, 0xC3
local NAMES = {
  [CNP] = "CNP",
  [SELECTIVE_ACKNOWLEDGE] = "SELECTIVE_ACKNOWLEDGE",
  [DC_CONNECT] = "DC_CONNECT",
  [DC_DISCONNECT] = "DC_DISCONNECT",
  [DC_UNATTACHED] = "DC_UNATTACHED",
}

local f = {
  opcode = ProtoField.uint8(PREFIX .. ".opcode", "Opcode", base.HEX, NAMES),
  fecn = ProtoField.bool(PREFIX .. ".fecn", "FECN", 8, nil, 0x80),
  becn = ProtoField.bool(PREFIX .. ".becn", "BECN", 8, nil, 0x40),
  qkey = ProtoField.uint32(PREFIX .. ".qkey", "Queue Key", base.HEX),
  source_qp = ProtoField.uint24(PREFIX .. ".source_qp", "Source Queue Pair", base.HEX),
  syndrome = ProtoField.uint8(PREFIX .. ".syndrome", "Syndrome", base.HEX),
  msn = ProtoField.uint24(PREFIX .. ".msn", "Message Sequence Number"),
  bitmap = ProtoField.bytes(PREFIX .. ".bitmap", "Bitmap of the packets behind the PSN"),
  selective_psns = ProtoField.string(PREFIX .. ".selective_psns", "PSNs that have arrived"),
  icrc_good = ProtoField.bool(PREFIX .. ".icrc_good", "ICRC is right"),
  retransmitted = ProtoField.bool(PREFIX .. ".retransmitted", "Sent again"),
}
roce.fields = {
  f.opcode, f.fecn, f.becn, f.qkey, f.source_qp, f.syndrome, f.msn, f.bitmap, f.selective_psns, f.icrc_good,
  f.retransmitted,
}

local function make_expert(name, text, group, severity)
  return ProtoExpert.new(PREFIX .. "." .. name, text, expert.group[group], expert.severity[severity])
end

local EXPERT = {
  cnp = make_expert("cnp", "Congestion notification: the sender is to slow down", "SEQUENCE", "NOTE"),
  again = make_expert("again", "This PSN was seen before", "SEQUENCE", "NOTE"),
  icrc = make_expert("icrc", "The ICRC is wrong", "CHECKSUM", "ERROR"),
  unnumbered = make_expert(
    "icrc_unnumbered", "The ICRC is that of IPv4 identification 0: the kernel has cut this packet from a run",
    "CHECKSUM", "NOTE"
  ),
  malformed = make_expert("malformed", "Malformed", "MALFORMED", "ERROR"),
  snapped = make_expert("snapped", "The capture holds only the start of the packet", "UNDECODED", "NOTE"),
}
roce.experts = { EXPERT.cnp, EXPERT.again, EXPERT.icrc, EXPERT.unnumbered, EXPERT.malformed, EXPERT.snapped }

local bth_opcode = Field.new("infiniband.bth.opcode")
local ip_version = Field.new("ip.version")
local ip6_version = Field.new("ipv6.version")

-- The ICRC ------------------------------------------------------------------------------------------------------------

local TABLE = {}
if bits then
  for index = 0, 255 do
    local value = index
    for _ = 1, 8 do
      local low = bits.band(value, 1)
      value = bits.rshift(value, 1)
      if low == 1 then
        value = bits.bxor(value, 0xEDB88320)
      end
    end
    TABLE[index] = value
  end
end

-- CRC-32 of Ethernet, before its last inversion.
local function crc32(crc, text)
  local band, bxor, rshift = bits.band, bits.bxor, bits.rshift
  for at = 1, #text do
    crc = bxor(rshift(crc, 8), TABLE[band(bxor(crc, text:byte(at)), 0xFF)])
  end
  return crc
end

-- `text` with the bytes at `places` (from 0) as ones.
local function masked(text, places)
  local parts, from = {}, 1
  for _, place in ipairs(places) do
    parts[#parts + 1] = text:sub(from, place)
    parts[#parts + 1] = "\255"
    from = place + 2
  end
  parts[#parts + 1] = text:sub(from)
  return table.concat(parts)
end

-- Type of service, time to live, header checksum; of IPv6 the low half of the first byte (traffic class) as well, the
-- flow label and the hop limit.
local IPV4_VARIANT = { 1, 8, 10, 11 }
local IPV6_VARIANT = { 1, 2, 3, 7 }
local NO_IDENTIFICATION = "\0\0"

local function network_header(tvb, udp_at)
  for _, field in ipairs({ ip_version() }) do
    local size = udp_at - field.offset
    if size >= 20 and tvb(field.offset, 1):bitfield(4, 4) * 4 == size then
      return masked(tvb(field.offset, size):raw(), IPV4_VARIANT)
    end
  end
  for _, field in ipairs({ ip6_version() }) do
    if field.offset + 40 == udp_at then
      return "\111" .. masked(tvb(field.offset, 40):raw(), IPV6_VARIANT):sub(2)
    end
  end
  return nil
end

-- Whether the ICRC is right, and whether only for identification 0; nil where nobody can tell.
local function check_icrc(tvb, bth_at, stop)
  local network = bits and network_header(tvb, bth_at - 8)
  if not network then
    return nil
  end
  local rest = masked(tvb(bth_at - 8, 8):raw(), { 6, 7 })
    .. masked(tvb(bth_at, stop - ICRC_BYTES - bth_at):raw(), { 4 })
  local sent = bits.band(tvb(stop - ICRC_BYTES, ICRC_BYTES):le_uint(), 0xFFFFFFFF)
  local function is_of(header)
    local crc = crc32(crc32(0xFFFFFFFF, string.rep("\255", 8) .. header), rest)
    return bits.band(bits.bxor(crc, 0xFFFFFFFF), 0xFFFFFFFF) == sent
  end
  if is_of(network) then
    return true, false
  end
  local unnumbered = network:byte(1) < 0x60 and is_of(network:sub(1, 4) .. NO_IDENTIFICATION .. network:sub(7))
  return unnumbered, unnumbered
end

-- What is sent again --------------------------------------------------------------------------------------------------

local seen, again = {}, {}

function roce.init()
  seen, again = {}, {}
end

-- "request" or "response" of a connection; nil for what has no PSN of its own, or is never repeated.
local function direction(opcode)
  if opcode >= 0x40 then
    return nil
  end
  local operation = opcode % 32
  if operation <= 0x0C or operation == 0x13 or operation == 0x14 or operation == 0x16 or operation == 0x17 then
    return "request"
  end
  if operation <= 0x10 or operation == 0x12 then
    return "response"
  end
  return nil
end

local function was_seen(pinfo, opcode, qp, psn)
  local way = direction(opcode)
  if way == nil then
    return false
  end
  if not pinfo.visited then
    local key = table.concat({ tostring(pinfo.net_src), tostring(pinfo.net_dst), qp, way }, " ")
    local flow = seen[key]
    if flow == nil then
      flow = { psns = {}, order = {}, first = 1, last = 0 }
      seen[key] = flow
    end
    if flow.psns[psn] then
      again[pinfo.number] = true
    else
      flow.psns[psn] = true
      flow.last = flow.last + 1
      flow.order[flow.last] = psn
      if flow.last - flow.first >= REMEMBERED_PSNS then
        flow.psns[flow.order[flow.first]] = nil
        flow.order[flow.first] = nil
        flow.first = flow.first + 1
      end
    end
  end
  return again[pinfo.number] or false
end

-- Opcodes that Wireshark does not know --------------------------------------------------------------------------------

-- "5,7-9" of the bits of a range, the lowest bit of its first byte first, which is that of `base`.
local function bitmap_psns(range, base)
  local runs, first = {}, nil
  for bit = 0, range:len() * 8 do
    local set = bit < range:len() * 8 and range(math.floor(bit / 8), 1):bitfield(7 - bit % 8, 1) == 1
    if set and not first then
      first = bit
    elseif not set and first then
      local from, to = (base + first) % PSN_SPACE, (base + bit - 1) % PSN_SPACE
      runs[#runs + 1] = from == to and string.format("%d", from) or string.format("%d-%d", from, to)
      first = nil
    end
  end
  return table.concat(runs, ",")
end

local function dissect_selective(tree, body, psn)
  if body:len() < 4 then
    tree:add_proto_expert_info(EXPERT.malformed, "Malformed: the AETH is cut short")
    return "[malformed]"
  end
  tree:add(f.syndrome, body(0, 1))
  tree:add(f.msn, body(1, 3))
  local psns = ""
  if body:len() > 4 then
    tree:add(f.bitmap, body(4))
    psns = bitmap_psns(body(4), (psn + 1) % PSN_SPACE)
  end
  tree:add(f.selective_psns, psns):set_generated()
  return "SACK " .. psns
end

local function dissect_cnp(tree)
  tree:add_proto_expert_info(EXPERT.cnp)
  return "CNP"
end

local DETH_BYTES = 8

local function dissect_dynamic(tree, body, _, opcode)
  if body:len() < DETH_BYTES then
    tree:add_proto_expert_info(EXPERT.malformed, "Malformed: the DETH is cut short")
    return "[malformed]"
  end
  tree:add(f.qkey, body(0, 4))
  tree:add(f.source_qp, body(5, 3))
  return NAMES[opcode]
end

-- By opcode: a function of the tree, what follows the BTH up to padding and ICRC, the PSN, and the opcode; what it returns
-- is added to the Info column. Manufacturers have 0xC0 to 0xFF.
local DISSECTORS = {
  [CNP] = dissect_cnp,
  [SELECTIVE_ACKNOWLEDGE] = dissect_selective,
  [DC_CONNECT] = dissect_dynamic,
  [DC_DISCONNECT] = dissect_dynamic,
  [DC_UNATTACHED] = dissect_dynamic,
}

-- The whole packet ----------------------------------------------------------------------------------------------------

function roce.dissector(tvb, pinfo, root)
  local opcode_field = bth_opcode()
  if opcode_field == nil then
    return
  end
  local at, captured = opcode_field.offset, tvb:len()
  -- Not pinfo.dst_port: Wireshark's dissector has put the queue pair there.
  if at < 8 or captured < at + BTH_BYTES or tvb(at - 6, 2):uint() ~= UDP_PORT then
    return
  end
  local bth = tvb(at, BTH_BYTES)
  local opcode, qp, psn = bth(0, 1):uint(), bth(5, 3):uint(), bth(9, 3):uint()
  local stop = at - 8 + tvb(at - 4, 2):uint()
  local tree = root:add(roce, tvb(at, math.min(captured, math.max(stop, at + BTH_BYTES)) - at))
  tree:add(f.fecn, bth(4, 1))
  tree:add(f.becn, bth(4, 1))
  local dissect = DISSECTORS[opcode]
  if dissect then
    tree:add(f.opcode, bth(0, 1))
    if stop > captured then
      tree:add_proto_expert_info(EXPERT.snapped)
    elseif stop - ICRC_BYTES - bth:bitfield(10, 2) < at + BTH_BYTES then
      tree:add_proto_expert_info(EXPERT.malformed, "Malformed: padding and ICRC are cut short")
    else
      local size = stop - ICRC_BYTES - bth:bitfield(10, 2) - at - BTH_BYTES
      local body = size > 0 and tvb(at + BTH_BYTES, size) or tvb(at, 0)
      pinfo.cols.info:append(" " .. dissect(tree, body, psn, opcode))
    end
  end
  if stop <= captured and stop >= at + BTH_BYTES + ICRC_BYTES then
    local good, unnumbered = check_icrc(tvb, at, stop)
    if good ~= nil then
      local item = tree:add(f.icrc_good, tvb(stop - ICRC_BYTES, ICRC_BYTES), good):set_generated()
      if not good then
        item:add_proto_expert_info(EXPERT.icrc)
        pinfo.cols.info:append(" [bad ICRC]")
      elseif unnumbered then
        item:add_proto_expert_info(EXPERT.unnumbered)
      end
    end
  end
  local repeated = was_seen(pinfo, opcode, qp, psn)
  local item = tree:add(f.retransmitted, bth(9, 3), repeated):set_generated()
  if repeated then
    item:add_proto_expert_info(EXPERT.again)
    pinfo.cols.info:append(" [again]")
  end
end

-- After Wireshark's own dissector, which has found the BTH.
register_postdissector(roce)
