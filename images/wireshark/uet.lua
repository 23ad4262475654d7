-- Ultra Ethernet Transport (UET) for Wireshark and tshark.
--
--   tshark -X lua_script:images/wireshark/uet.lua -o udp.try_heuristic_first:TRUE -r capture.pcap
--   wireshark -X lua_script:images/wireshark/uet.lua -o udp.try_heuristic_first:TRUE capture.pcap
--
-- or copy this folder into the folder "Personal Lua Plugins" of Help > About Wireshark > Folders. The preference matters
-- because a source port is an entropy value: without it Wireshark takes a packet from port 53 for DNS.
-- Tried with Wireshark 4.0.17 (Lua 5.2); it uses nothing that Lua 5.4 (Wireshark 4.4 and later) has not.
--
-- It takes UDP packets to port 4793; other ports by "Decode As". Useful display filters:
--
--   uet.pdcid == 17              both directions of a PDC, by either of its two PDCIDs
--   uet.nack_code == 0x01        data that a switch trimmed
--   uet.flags.retx == 1          retransmissions
--   uet.trimmed == 1
--   uet.malformed || uet.unknown what the testbed's own endpoints refuse
--
-- A Wireshark that knows UET by itself has the names "uet..." taken; then ours are "uet_testbed...", and this script
-- takes the port.
--
-- Source: UE Specification 1.0.1, section 3.4 (SES) and 3.5 (PDS, TSS). Where public sources disagree: ACK_CCX has 128
-- bits of state and NACK_CCX 124 after its type; the inner word of the rendezvous extension is ri_generation:8 |
-- PIDonFEP:12 | resource_index:12; semantic_control is shown as a number.

local UDP_PORT = 4793
local ICV_BYTES = 16
local PSN_SPACE = 0x100000000

-- Proto() refuses a name that is taken.
local PREFIX = "uet"
local free, uet = pcall(Proto, PREFIX, "Ultra Ethernet Transport")
if not free then
  PREFIX = "uet_testbed"
  uet = Proto(PREFIX, "Ultra Ethernet Transport (testbed)")
end

local HERE = debug.getinfo(1, "S").source:match("^@?(.*[/\\])") or ""
local f, list, NAMES, add = dofile(HERE .. "uet_fields.lua")(PREFIX)
local SES = loadfile(HERE .. "uet_ses.lua")(f, NAMES, add)
uet.fields = list

local function make_expert(name, text, group, severity)
  local made = ProtoExpert.new(PREFIX .. "." .. name, text, expert.group[group], expert.severity[severity])
  uet.experts[#uet.experts + 1] = made
  return made
end

local EXPERT = {
  malformed = make_expert("malformed", "Malformed", "MALFORMED", "ERROR"),
  unknown = make_expert("unknown", "A number that UE 1.0 does not define", "PROTOCOL", "WARN"),
  reserved = make_expert("reserved_bits", "Reserved bits are set", "PROTOCOL", "NOTE"),
  trimmed = make_expert("cut.trimmed", "Trimmed by a switch", "SEQUENCE", "NOTE"),
  snapped = make_expert("cut.snapped", "The capture holds only the start of the packet", "UNDECODED", "NOTE"),
}

local udp_length = Field.new("udp.length")

-- A packet while it is taken apart ------------------------------------------------------------------------------------

-- What ends the dissection of a packet; caught in uet.dissector.
local STOP = {}

local Packet = {}
Packet.__index = Packet

-- The next `length` bytes, and past them. Where they are missing, say why and stop.
function Packet:take(length, what)
  if self.at + length > self.size then
    local text = string.format("%s: %d of %d bytes are there", what, self.size - self.at, length)
    if self.trimmed then
      self.tree:add_proto_expert_info(EXPERT.trimmed, "Trimmed within " .. text)
    elseif self.snapped then
      self.tree:add_proto_expert_info(EXPERT.snapped, "The capture ends within " .. text)
    else
      self:malformed("%s", text)
    end
    error(STOP, 0)
  end
  local range = self.tvb(self.at, length)
  self.at = self.at + length
  return range
end

function Packet:malformed(format, ...)
  self.refused = true
  self.tree:add_proto_expert_info(EXPERT.malformed, "Malformed: " .. string.format(format, ...))
end

function Packet:unknown(item, format, ...)
  self.refused = true
  item:add_proto_expert_info(EXPERT.unknown, string.format(format, ...))
end

-- A number with a name; one without is reserved or a vendor's.
function Packet:named(tree, name, range, names, value)
  local item = tree:add(f[name], range)
  if names[value] == nil then
    self:unknown(item, "%s 0x%02X is reserved or a vendor's", name, value)
  end
end

-- For the Info column.
function Packet:say(format, ...)
  self.info[#self.info + 1] = string.format(format, ...)
end

local function derived(tree, name, range, value)
  tree:add(f[name], range, value):set_generated()
end

-- PDS: what several headers have in common ----------------------------------------------------------------------------

-- Places of bits in the prologue, counted from its first.
local FLAG_BITS = { m = 10, isrod = 10, retx = 11, ar = 12, p = 12, nt = 12, syn = 13 }
local FLAG_MARKS = { m = "M", isrod = "ISROD", retx = "RETX", ar = "AR", p = "P", syn = "SYN" }

-- `names` are the flags that this type has, `defined` all bits of them.
local function add_flags(packet, tree, range, names, defined)
  local flags = tree:add(f.flags, range)
  for _, name in ipairs(names) do
    flags:add(f["flags." .. name], range)
    if FLAG_MARKS[name] and range:bitfield(FLAG_BITS[name], 1) == 1 then
      packet:say(FLAG_MARKS[name])
    end
  end
  for bit = 9, 15 do
    local mask = math.floor(2 ^ (15 - bit))
    if range:bitfield(bit, 1) == 1 and math.floor(defined / mask) % 2 == 0 then
      flags:add_proto_expert_info(EXPERT.reserved, string.format("Reserved flag 0x%02X is set", mask))
    end
  end
end

local function dissect_prologue(packet, tree, range, names, defined)
  add(tree, range, { "type", 0, 2 })
  packet:named(tree, "next_hdr", range(0, 2), NAMES.next_headers, range:bitfield(5, 4))
  add_flags(packet, tree, range(0, 2), names, defined)
end

local function add_pdcid(tree, name, range)
  tree:add(f[name], range)
  derived(tree, "pdcid", range, range:uint())
end

local function add_spdcid(packet, tree, range)
  add_pdcid(tree, "spdcid", range)
  if range:uint() == 0 then
    packet:malformed("SPDCID is 0")
  end
end

-- SPDCID and then DPDCID, or with SYN the offset from Start_PSN (tables 3-33 and 3-38).
local function add_addressing(packet, tree, range)
  local psn, last = range(4, 4):uint(), range(10, 2)
  add_spdcid(packet, tree, range(8, 2))
  if range:bitfield(FLAG_BITS.syn, 1) == 0 then
    add_pdcid(tree, "dpdcid", last)
  else
    add(tree, last, { "pdc_info", 0, 2, "psn_offset", 0, 2 })
    derived(tree, "start_psn", last, (psn - last:bitfield(4, 12)) % PSN_SPACE)
  end
end

-- PDS: requests -------------------------------------------------------------------------------------------------------

local function dissect_request(packet, label, length)
  local range = packet:take(length, label)
  local tree = packet.tree:add(range, "PDS " .. label)
  dissect_prologue(packet, tree, range, { "syn", "ar", "retx" }, 0x1C)
  local offset, psn = range(2, 2):int(), range(4, 4):uint()
  local clear = (psn + offset) % PSN_SPACE
  add(tree, range, { "clear_psn_offset", 2, 2 })
  derived(tree, "clear_psn", range(2, 2), clear)
  if offset > 0 then
    packet:malformed("CLEAR_PSN is ahead of the PSN")
  end
  add(tree, range, { "psn", 4, 4 })
  add_addressing(packet, tree, range)
  packet:say("psn=%d clear=%d", psn, clear)
  if length > 12 then
    add(tree, range, { "ccc_id", 12, 1, "credit_target", 13, 3 })
    packet:say("target=%d", range(13, 3):uint())
  end
end

local function dissect_rudi(packet, label)
  local range = packet:take(8, label)
  local tree = packet.tree:add(range, "PDS " .. label)
  if label == "RUDI_RESP" then
    dissect_prologue(packet, tree, range, { "m", "retx" }, 0x30)
  else
    dissect_prologue(packet, tree, range, { "retx" }, 0x10)
  end
  add(tree, range, { "pkt_id", 4, 4 })
  packet:say("id=%d", range(4, 4):uint())
end

local function dissect_uud(packet, label)
  local range = packet:take(4, label)
  dissect_prologue(packet, packet.tree:add(range, "PDS " .. label), range, {}, 0)
end

-- PDS: acknowledgements -----------------------------------------------------------------------------------------------

-- "5,7-9" of the 64 bits above a base.
local function bitmap_psns(range, base)
  local runs, first = {}, nil
  for bit = 0, 64 do
    -- Bit 0 is the least significant.
    local set = bit < 64 and range:bitfield(63 - bit, 1) == 1
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

local function dissect_sack(packet, tree, range)
  local base = (packet.cack + range(2, 2):int()) % PSN_SPACE
  local psns = bitmap_psns(range(4, 8), base)
  add(tree, range, { "mpr", 1, 1, "sack_psn_offset", 2, 2 })
  derived(tree, "sack_base_psn", range(2, 2), base)
  add(tree, range, { "sack_bitmap", 4, 8 })
  if psns ~= "" then
    derived(tree, "sack_psns", range(4, 8), psns)
    packet:say("sack=%s", psns)
  end
end

local function dissect_cc_state(packet, range)
  local tree = packet.tree:add(range, "Congestion control")
  local kind = range:bitfield(0, 4)
  local item = tree:add(f.cc_type, range(0, 1))
  if kind > 1 then
    item:add_proto_expert_info(EXPERT.reserved, string.format("cc_type %d is reserved or proprietary", kind))
  end
  add(tree, range, { "cc_flags", 0, 1 })
  dissect_sack(packet, tree, range)
  if kind == 0 then
    local service = range(12, 2)
    add(tree, range, { "service_time", 12, 2 })
    if service:uint() ~= 0 then
      derived(tree, "service_time_ns", service, service:uint() * 128)
    end
    add(tree, range, { "rc", 14, 1, "rcv_cwnd_pend", 14, 1, "rcvd_bytes", 15, 3, "ooo_count", 18, 2 })
  elseif kind == 1 then
    add(tree, range, { "credit", 12, 3, "ooo_count", 18, 2 })
    packet:say("credit=%d", range(12, 3):uint())
  else
    add(tree, range, { "cc_state", 12, 8 })
  end
end

local function dissect_ccx_state(packet, range)
  local tree = packet.tree:add(range, "Congestion control")
  add(tree, range, { "ccx_type", 0, 1, "cc_flags", 0, 1 })
  dissect_sack(packet, tree, range)
  add(tree, range, { "cc_state", 12, 16 })
end

-- `extra`: bytes after the 12 of a plain ACK, and who reads them.
local function dissect_ack(packet, label, extra, dissect_extra)
  local range = packet:take(12 + extra, label)
  local tree = packet.tree:add(range, "PDS " .. label)
  dissect_prologue(packet, tree, range, { "m", "retx", "p" }, 0x3E)
  local item, req = tree:add(f["flags.req"], range(0, 2)), range:bitfield(13, 2)
  if req == 3 then
    item:add_proto_expert_info(EXPERT.reserved, "REQ 3 is reserved")
  elseif req > 0 then
    packet:say(NAMES.req[req])
  end
  local following = range:bitfield(5, 4)
  if following >= 1 and following <= 3 then
    packet:malformed("%s in an acknowledgement", NAMES.next_headers[following])
  end
  packet.cack = range(4, 4):uint()
  if range:bitfield(FLAG_BITS.p, 1) == 1 then
    add(tree, range, { "probe_opaque", 2, 2 })
    packet:say("probe=0x%04X cack=%d", range(2, 2):uint(), packet.cack)
  else
    local ack = (packet.cack + range(2, 2):int()) % PSN_SPACE
    add(tree, range, { "ack_psn_offset", 2, 2 })
    derived(tree, "ack_psn", range(2, 2), ack)
    packet:say("ack=%d cack=%d", ack, packet.cack)
  end
  add(tree, range, { "cack_psn", 4, 4 })
  add_spdcid(packet, tree, range(8, 2))
  add_pdcid(tree, "dpdcid", range(10, 2))
  if dissect_extra then
    dissect_extra(packet, range(12, extra))
  end
end

local function dissect_nack(packet, label, extra)
  local range = packet:take(16 + extra, label)
  local tree = packet.tree:add(range, "PDS " .. label)
  add(tree, range, { "type", 0, 2, "next_hdr", 0, 2 })
  add_flags(packet, tree, range(0, 2), { "m", "retx", "nt" }, 0x38)
  if range:bitfield(5, 4) ~= 0 then
    tree:add_proto_expert_info(EXPERT.reserved, "A NACK has no next header; this one is ignored")
  end
  local code = range(2, 1):uint()
  packet:named(tree, "nack_code", range(2, 1), NAMES.nack_codes, code)
  add(tree, range, { "vendor_code", 3, 1 })
  packet:say("%s", NAMES.of(NAMES.nack_codes, code))
  local of_rudi = range:bitfield(FLAG_BITS.nt, 1) == 1
  add(tree, range, { of_rudi and "nack_pkt_id" or "nack_psn", 4, 4 })
  packet:say("%s=%d", of_rudi and "id" or "psn", range(4, 4):uint())
  add_pdcid(tree, "spdcid", range(8, 2))
  add_pdcid(tree, "dpdcid", range(10, 2))
  add(tree, range, { "payload", 12, 4 })
  if extra > 0 then
    add(tree, range, { "nccx_type", 16, 1, "cc_state", 16, extra })
  end
end

-- PDS: control packets ------------------------------------------------------------------------------------------------

local ACK_REQ, CLEAR_CMD, PROBE, CREDIT, CREDIT_REQ = 1, 2, 6, 7, 8

local function dissect_control(packet, label)
  local range = packet:take(16, label)
  local tree = packet.tree:add(range, "PDS " .. label)
  local kind, psn, payload = range:bitfield(5, 4), range(4, 4):uint(), range(12, 4)
  packet:say("%s", NAMES.of(NAMES.control_types, kind))
  add(tree, range, { "type", 0, 2 })
  packet:named(tree, "ctl_type", range(0, 2), NAMES.control_types, kind)
  add_flags(packet, tree, range(0, 2), { "isrod", "syn", "ar", "retx" }, 0x3C)
  if kind == PROBE then
    add(tree, range, { "probe_opaque", 2, 2 })
  end
  add(tree, range, { "psn", 4, 4 })
  packet:say("psn=%d", psn)
  add_addressing(packet, tree, range)
  add(tree, payload, { "payload", 0, 4 })
  if kind == ACK_REQ then
    derived(tree, "ack_req_message_id", payload(2, 2), payload(2, 2):uint())
  elseif kind == CLEAR_CMD then
    derived(tree, "clear_psn", payload, payload:uint())
    packet:say("clear=%d", payload:uint())
  elseif kind == PROBE then
    derived(tree, "sack_base_psn", payload, payload:uint())
  elseif kind == CREDIT then
    derived(tree, "credit", payload(0, 3), payload(0, 3):uint())
    packet:say("credit=%d", payload(0, 3):uint())
  elseif kind == CREDIT_REQ then
    derived(tree, "credit_target", payload(1, 3), payload(1, 3):uint())
    packet:say("target=%d", payload(1, 3):uint())
  end
end

-- TSS -----------------------------------------------------------------------------------------------------------------

-- Header, and what is encrypted; the ICV is the end of a whole packet (table 3-90).
local function dissect_tss(packet)
  local with_ssi = packet.tvb(0, 1):bitfield(5, 1) == 1
  local range = packet:take(with_ssi and 16 or 12, "TSS header")
  local tree = packet.tree:add(range, "TSS")
  add(tree, range, { "tss.type", 0, 1, "tss.sp", 0, 1, "tss.an", 0, 1, "tss.sdi", 1, 3 })
  local tsc = range(4, 8)
  if with_ssi then
    add(tree, range, { "tss.ssi", 4, 4 })
    packet:say("ssi=0x%08X", range(4, 4):uint())
    tsc = range(8, 8)
  end
  local counter = tsc(2, 6):uint64()
  add(tree, tsc, { "tss.epoch", 0, 2 })
  tree:add(f["tss.counter"], tsc(2, 6), counter)
  packet:say("sdi=%d epoch=%d counter=%s", range(1, 3):uint(), tsc(0, 2):uint(), tostring(counter))
  local icv = (packet.trimmed or packet.snapped) and 0 or ICV_BYTES
  local encrypted = packet.size - packet.at - icv
  if encrypted > 0 then
    tree:add(f["tss.encrypted"], packet:take(encrypted, "what is encrypted"))
    packet:say("%d B encrypted", encrypted)
  end
  if icv > 0 then
    tree:add(f["tss.icv"], packet:take(icv, "ICV"))
  end
end

-- The whole packet ----------------------------------------------------------------------------------------------------

-- Packets behind whose header no SES header is looked for.
local WITHOUT_SES = { [1] = true, [10] = true, [11] = true, [12] = true } -- TSS, NACK, CP, NACK_CCX

local PDS = {
  { dissect_tss }, { dissect_request, 12 }, { dissect_request, 12 }, { dissect_rudi }, { dissect_rudi },
  { dissect_uud }, { dissect_ack, 0 }, { dissect_ack, 20, dissect_cc_state }, { dissect_ack, 28, dissect_ccx_state },
  { dissect_nack, 0 }, { dissect_control }, { dissect_nack, 16 }, { dissect_request, 16 }, { dissect_request, 16 },
}

local function dissect_packet(packet)
  if packet.size < 2 then
    packet:take(2, "prologue")
  end
  local prologue = packet.tvb(0, 2)
  local kind, following = prologue:bitfield(0, 5), prologue:bitfield(5, 4)
  local label = NAMES.of(NAMES.types, kind)
  packet:say("%s", label)
  local way = PDS[kind]
  if way == nil then
    packet:unknown(packet.tree:add(f.type, prologue), "type %d is reserved", kind)
    return
  end
  way[1](packet, label, way[2], way[3])
  if not WITHOUT_SES[kind] and following ~= 0 then
    if SES[following] == nil or packet.refused then
      return
    end
    SES[following](packet)
  end
  local left = packet.size - packet.at
  if left > 0 then
    local range = packet:take(left, "data")
    packet.tree:add(f.data, range)
    derived(packet.tree, "data_length", range, left)
  end
end

-- UDP's length where a UDP header is below us (the innermost one), else what is there.
local function sent_bytes(tvb)
  local found = { udp_length() }
  local last = found[#found]
  return last and last.value >= 8 and last.value - 8 or tvb:reported_len()
end

function uet.dissector(tvb, pinfo, root)
  -- A source port is an entropy value and may be any number.
  if pinfo.src_port == UDP_PORT and pinfo.dst_port ~= UDP_PORT then
    return 0
  end
  local sent, reported, captured = sent_bytes(tvb), tvb:reported_len(), tvb:len()
  local tree = root:add(uet, tvb())
  local packet = setmetatable({
    tvb = tvb, tree = tree, at = 0, size = captured, info = {},
    trimmed = sent > reported, snapped = captured < reported,
  }, Packet)
  pinfo.cols.protocol = "UET"
  if packet.trimmed then
    tree:add(f.trimmed, true):set_generated()
    tree:add(f.trimmed_bytes, sent - reported):set_generated()
  end
  local done, reason = pcall(dissect_packet, packet)
  if not done and reason ~= STOP then
    packet:malformed("this dissector failed: %s", tostring(reason))
  end
  if packet.trimmed then
    packet:say("[trimmed: %d of %d B]", reported, sent)
  end
  if packet.refused then
    packet:say("[malformed]")
  end
  local text = table.concat(packet.info, " ")
  pinfo.cols.info = text
  tree:append_text(": " .. text)
  return captured
end

DissectorTable.get("udp.port"):add(UDP_PORT, uet)

-- Nothing is guessed here; heuristics are what Wireshark can be told to try before the lower of two port numbers.
uet:register_heuristic("udp", function(tvb, pinfo, root)
  if pinfo.dst_port ~= UDP_PORT then
    return false
  end
  uet.dissector(tvb, pinfo, root)
  return true
end)
