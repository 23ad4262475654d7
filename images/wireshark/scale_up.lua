-- Frames of the testbed's scale-up links: data with a SUE or UALink header, control ordered sets of Ultra Ethernet's link
-- layer (LLR, CBFC), and CC_Updates.
--
--   tshark -X lua_script:images/wireshark/scale_up.lua -r capture.pcap
--   wireshark -X lua_script:images/wireshark/scale_up.lua capture.pcap
--
-- or copy this file into the folder "Personal Lua Plugins" of Help > About Wireshark > Folders.
-- Tried with Wireshark 4.0.17 (Lua 5.2); it uses nothing that Lua 5.4 (Wireshark 4.4 and later) has not.
--
-- Useful display filters:
--
--   scale_up.type == 0x02        frames with an LLR_NACK
--   scale_up.replayed == 1       the sequence number is not ahead of what went the same way before
--   scale_up.fcs == 2            the check sequence is wrong (1: that of a poisoned frame)
--   scale_up.vc == 3             data of a virtual channel
--
-- A Wireshark that has the name "scale_up" taken gets "scale_up_testbed" instead. The names of fields are those of
-- `testbed decode --json`.
--
-- Source: testbed/protocols/scale_up/frames.py, ctlos.py and headers.py, which name the specifications.

local ETHERTYPE = 0x88B6
-- Two leaves that are one partner of a link group send with the same EtherType, to this address.
local OTHER_USERS = "\x01\x80\xc2\x00\x00\x0e"
local PREFIX_BYTES, FCS_BYTES = 4, 4
local CTLOS_BYTES, CTLOS_SLOTS = 8, 4
local CYCLE = 0x100000
-- Without the Ethernet header.
local CONTROL_BYTES, CC_UPDATE_BYTES = 46, 50

local PREFIX = "scale_up"
local free, scale_up = pcall(Proto, PREFIX, "Scale-up link")
if not free then
  PREFIX = "scale_up_testbed"
  scale_up = Proto(PREFIX, "Scale-up link")
end

-- The library of bit operations that this Wireshark has; without one the check sequence is not checked.
local bits = rawget(_G, "bit") or rawget(_G, "bit32")

local KINDS = { [0] = "CC_UPDATE", [1] = "SUE", [2] = "UALINK_REQUEST", [3] = "UALINK_RESPONSE" }
local CHECKS = { [0] = "GOOD", [1] = "POISONED", [2] = "BAD" }
local TYPES = {
  [0x01] = "LLR_ACK", [0x02] = "LLR_NACK", [0x03] = "LLR_INIT", [0x04] = "LLR_INIT_ECHO", [0x10] = "CF_UPDATE",
  [0x7F] = "LINK_SIGNAL",
}

local COMMANDS = {
  [0x03] = "READ", [0x08] = "LOAD_REDUCE", [0x28] = "WRITE", [0x29] = "WRITE_FULL", [0x2A] = "MESSAGE", [0x2C] = "MULTICAST",
  [0x2D] = "JOIN", [0x30] = "ATOMIC",
}

local f = {
  kind = ProtoField.uint8(PREFIX .. ".kind", "Kind", base.DEC, KINDS, 0x60),
  sequence = ProtoField.uint24(PREFIX .. ".sequence", "Sequence number", base.DEC, nil, 0x0FFFFF),
  eligible = ProtoField.bool(PREFIX .. ".eligible", "LLR-eligible", 8, nil, 0x80),
  vc = ProtoField.uint8(PREFIX .. ".vc", "Virtual channel", base.DEC, nil, 0x1F),
  payload = ProtoField.bytes(PREFIX .. ".payload", "Payload"),
  payload_length = ProtoField.uint32(PREFIX .. ".payload_length", "Payload length"),
  vcs = ProtoField.uint8(PREFIX .. ".vcs", "Virtual channel", base.DEC),
  consumed = ProtoField.uint32(PREFIX .. ".consumed", "Credits consumed (S_CC)"),
  type = ProtoField.uint8(PREFIX .. ".type", "Type", base.HEX, TYPES),
  set = ProtoField.string(PREFIX .. ".set", "Control ordered set"),
  sent_ns = ProtoField.uint64(PREFIX .. ".sent_ns", "Sent, lab time (ns)"),
  fcs = ProtoField.uint8(PREFIX .. ".fcs", "Frame check sequence", base.DEC, CHECKS),
  replayed = ProtoField.bool(PREFIX .. ".replayed", "Replayed"),
}

-- Headers, as names and bits from the highest bit on; "" is reserved. `address` lacks its two lowest bits.
local HEADERS = {
  [1] = {
    size = 8, destination = "xpu",
    { "version", 2 }, { "operation", 2 }, { "", 2 }, { "xpu", 10 }, { "next_psn", 16 }, { "vc", 2 }, { "", 4 },
    { "partition", 10 }, { "acked_psn", 16 },
  },
  [2] = {
    size = 16, destination = "destination", ftype = 1,
    { "ftype", 4 }, { "command", 6 }, { "vc", 2 }, { "address_space", 2 }, { "tag", 11 }, { "pool", 1 },
    { "attributes", 8 }, { "length", 6 }, { "metadata", 8 }, { "address", 55 }, { "source", 10 },
    { "destination", 10 }, { "cache_load", 1 }, { "cache_way", 2 }, { "beats", 2 },
  },
  [3] = {
    size = 8, destination = "destination", ftype = 2,
    { "ftype", 4 }, { "vc", 2 }, { "tag", 11 }, { "pool", 1 }, { "length", 2 }, { "offset", 2 }, { "status", 4 },
    { "is_write", 1 }, { "last", 1 }, { "source", 10 }, { "destination", 10 }, { "", 16 },
  },
}
local header_fields = {}
for _, header in ipairs(HEADERS) do
  for _, entry in ipairs(header) do
    local name = entry[1]
    if name ~= "" and name ~= "ftype" and not header_fields[name] then
      local make = name == "address" and ProtoField.uint64 or ProtoField.uint16
      local names = name == "command" and COMMANDS or nil
      header_fields[name] = make(PREFIX .. ".header." .. name, name, name == "address" and base.HEX or base.DEC, names)
    end
  end
end
do
  local all = {}
  for _, field in pairs(f) do
    all[#all + 1] = field
  end
  for _, field in pairs(header_fields) do
    all[#all + 1] = field
  end
  scale_up.fields = all
end

local function make_expert(name, text, group, severity)
  return ProtoExpert.new(PREFIX .. "." .. name, text, expert.group[group], expert.severity[severity])
end

local EXPERT = {
  nack = make_expert("nack", "The receiver asks for a replay", "SEQUENCE", "NOTE"),
  again = make_expert("again", "This frame is sent again", "SEQUENCE", "NOTE"),
  poisoned = make_expert("poisoned", "The frame is poisoned: it was damaged on another link", "CHECKSUM", "WARN"),
  bad = make_expert("bad", "The frame check sequence is wrong", "CHECKSUM", "ERROR"),
  malformed = make_expert("malformed", "Malformed", "MALFORMED", "ERROR"),
  snapped = make_expert("snapped", "The capture holds only the start of the frame", "UNDECODED", "NOTE"),
}
scale_up.experts = { EXPERT.nack, EXPERT.again, EXPERT.poisoned, EXPERT.bad, EXPERT.malformed, EXPERT.snapped }

local eth_dst, eth_src = Field.new("eth.dst"), Field.new("eth.src")

-- The check sequence ----------------------------------------------------------------------------------------------------

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

-- 0 good, 1 poisoned, 2 bad; nil where nobody can tell.
local function check_of(header, tvb)
  if not bits or not header then
    return nil
  end
  local text = header .. string.char(0x88, 0xB6) .. tvb(0, tvb:len() - FCS_BYTES):raw()
  local band, bxor, rshift = bits.band, bits.bxor, bits.rshift
  local crc = 0xFFFFFFFF
  for at = 1, #text do
    crc = bxor(rshift(crc, 8), TABLE[band(bxor(crc, text:byte(at)), 0xFF)])
  end
  local sent = band(tvb(tvb:len() - FCS_BYTES, FCS_BYTES):le_uint(), 0xFFFFFFFF)
  if sent == band(bxor(crc, 0xFFFFFFFF), 0xFFFFFFFF) then
    return 0
  end
  return sent == band(crc, 0xFFFFFFFF) and 1 or 2
end

-- What is sent again ----------------------------------------------------------------------------------------------------

local highest, replayed = {}, {}

function scale_up.init()
  highest, replayed = {}, {}
end

local function was_seen(pinfo, way, sequence)
  if not pinfo.visited then
    local last = highest[way]
    local ahead = last and (sequence - last) % CYCLE or 1
    if ahead > 0 and ahead < CYCLE / 2 then
      highest[way] = sequence
    else
      replayed[pinfo.number] = true
    end
  end
  return replayed[pinfo.number] or false
end

-- The parts of a frame --------------------------------------------------------------------------------------------------

local function malformed(tree, why)
  tree:add_proto_expert_info(EXPERT.malformed, "Malformed: " .. why)
  return "[malformed: " .. why .. "]"
end

local function dissect_set(tree, range)
  local type_, first = range(1, 1):uint(), range(2, 3):bitfield(0, 20)
  local text
  if range(0, 1):uint() ~= 0x5C then
    return nil, "control character"
  elseif range(4, 1):bitfield(4, 4) ~= 6 then
    return nil, "O-code"
  elseif not TYPES[type_] then
    return nil, "type of a CtlOS"
  elseif type_ == 0x10 then
    text = string.format(
      "CF_UPDATE VC %d = %d, VC %d = %d", range(2, 1):bitfield(0, 5), range(2, 3):bitfield(5, 15),
      range(5, 1):bitfield(0, 5), range(5, 3):bitfield(5, 15)
    )
  elseif type_ == 0x7F then
    local level = range(2, 3):bitfield(0, 20)
    text = level == 0 and "LINK_SIGNAL none" or string.format("LINK_SIGNAL %.0f%% of the rate", level / CYCLE * 100)
  elseif type_ >= 0x03 then
    text = string.format("%s %d data 0x%04x", TYPES[type_], first, range(5, 2):le_uint())
  else
    text = string.format("%s %d", TYPES[type_], first)
  end
  tree:add(f.type, range(1, 1))
  local item = tree:add(f.set, range, text):set_generated()
  if type_ == 0x02 then
    item:add_proto_expert_info(EXPERT.nack)
  end
  return text, nil, type_ == 0x03 and first or nil
end

local function dissect_control(tree, tvb, pinfo, way, check)
  local said = {}
  for slot = 0, CTLOS_SLOTS - 1 do
    local range = tvb(slot * CTLOS_BYTES, CTLOS_BYTES)
    if range:bytes():tohex() == "0000000000000000" then
      break
    end
    local text, wrong, first = dissect_set(tree, range)
    if not text then
      return malformed(tree, wrong)
    end
    if first and check == 0 and not pinfo.visited then
      highest[way] = (first - 1) % CYCLE
    end
    said[#said + 1] = text
  end
  tree:add(f.sent_ns, tvb(CTLOS_SLOTS * CTLOS_BYTES, 8))
  return table.concat(said, "; ")
end

local function dissect_counts(tree, tvb)
  local count, said = tvb(PREFIX_BYTES, 1):uint(), {}
  if count < 1 or count > 10 then
    return malformed(tree, count .. " counters")
  end
  for index = 0, count - 1 do
    local range = tvb(PREFIX_BYTES + 2 + 4 * index, 4)
    local vc, consumed = range:bitfield(0, 5), range:bitfield(12, 20)
    tree:add(f.vcs, range(0, 1), vc)
    tree:add(f.consumed, range, consumed)
    said[#said + 1] = string.format("VC %d = %d", vc, consumed)
  end
  return "CC_UPDATE " .. table.concat(said, ", ")
end

local function dissect_header(tree, tvb, kind, vc, whole)
  local header = HEADERS[kind]
  if whole - PREFIX_BYTES - FCS_BYTES < header.size then
    return malformed(tree, "the header is cut short")
  end
  if tvb:len() < PREFIX_BYTES + header.size then
    tree:add_proto_expert_info(EXPERT.snapped)
    return KINDS[kind]
  end
  local range, at, destination, asked = tvb(PREFIX_BYTES, header.size), 0, nil, ""
  if header.ftype and range(0, 1):bitfield(0, 4) ~= header.ftype then
    return malformed(tree, "FTYPE")
  end
  for _, entry in ipairs(header) do
    local name, size = entry[1], entry[2]
    local field = header_fields[name]
    if name == "address" then
      -- Bits 48 to 102 of the header, in two parts: a bit field of Wireshark's has at most 32 bits here.
      local high, low = range(6, 3):uint(), range(9, 4):bitfield(0, 31)
      local value = (UInt64.new(high, 0):lshift(31) + UInt64.new(low, 0)):lshift(2)
      tree:add(field, range(6, 7), value)
    elseif field then
      local first = math.floor(at / 8)
      local bytes = math.floor((at + size - 1) / 8) - first + 1
      local value = range:range(first, bytes):bitfield(at % 8, size)
      tree:add(field, range:range(first, bytes), value)
      if name == header.destination then
        destination = value
      elseif name == "command" then
        asked = " " .. (COMMANDS[value] or string.format("command 0x%02x", value))
      end
    end
    at = at + size
  end
  local length = whole - PREFIX_BYTES - header.size - FCS_BYTES
  tree:add(f.payload_length, length):set_generated()
  local there = math.min(length, tvb:len() - PREFIX_BYTES - header.size)
  if there > 0 then
    tree:add(f.payload, tvb(PREFIX_BYTES + header.size, there))
  end
  return string.format("%s%s VC %d to %d | %d B", KINDS[kind], asked, vc, destination, length)
end

local function dissect_frame(tree, tvb, pinfo, way, check, whole)
  local word, flags = tvb(0, 3), tvb(3, 1)
  local sequence, kind, vc = word:bitfield(4, 20), flags:bitfield(1, 2), flags:bitfield(3, 5)
  local eligible = flags:bitfield(0, 1) == 1
  if word:bitfield(0, 4) ~= 7 then
    return malformed(tree, "neither a sequence number nor a CtlOS")
  elseif not eligible and sequence ~= 0 then
    return malformed(tree, "a sequence number in a frame that is not eligible for LLR")
  elseif kind == 0 and vc ~= 0 then
    return malformed(tree, "a CC_Update belongs to no VC")
  elseif kind == 0 and whole ~= CC_UPDATE_BYTES then
    return malformed(tree, "length of a CC_Update")
  end
  tree:add(f.eligible, flags)
  tree:add(f.kind, flags)
  local again = false
  if eligible then
    tree:add(f.sequence, word)
    again = check ~= 2 and was_seen(pinfo, way, sequence)
  end
  local text
  if kind ~= 0 then
    tree:add(f.vc, flags)
    text = dissect_header(tree, tvb, kind, vc, whole)
  elseif tvb:len() < CC_UPDATE_BYTES - FCS_BYTES then
    tree:add_proto_expert_info(EXPERT.snapped)
    text = "CC_UPDATE"
  else
    text = dissect_counts(tree, tvb)
  end
  local item = tree:add(f.replayed, word, again):set_generated()
  if again then
    item:add_proto_expert_info(EXPERT.again)
  end
  return (eligible and string.format("seq %d ", sequence) or "") .. text .. (again and " [again]" or "")
end

function scale_up.dissector(tvb, pinfo, root)
  local destination, source = eth_dst(), eth_src()
  local addresses = destination and source and destination.range:raw() .. source.range:raw()
  if addresses and addresses:sub(1, 6) == OTHER_USERS then
    return 0
  end
  pinfo.cols.protocol = "SCALE-UP"
  local whole, captured = tvb:reported_len(), tvb:len()
  local tree = root:add(scale_up, tvb())
  if whole < PREFIX_BYTES + FCS_BYTES then
    pinfo.cols.info = malformed(tree, "the frame is cut short")
    return captured
  end
  local check = captured == whole and check_of(addresses, tvb) or nil
  local control = tvb(0, 1):uint() == 0x5C
  local text
  if control and whole ~= CONTROL_BYTES then
    text = malformed(tree, "length of a control frame")
  elseif captured < (control and CONTROL_BYTES - FCS_BYTES or PREFIX_BYTES) then
    tree:add_proto_expert_info(EXPERT.snapped)
    text = "[cut]"
  elseif control then
    text = dissect_control(tree, tvb, pinfo, addresses, check)
  else
    text = dissect_frame(tree, tvb, pinfo, addresses, check, whole)
  end
  if check then
    local item = tree:add(f.fcs, tvb(captured - FCS_BYTES, FCS_BYTES), check):set_generated()
    if check > 0 then
      item:add_proto_expert_info(check == 1 and EXPERT.poisoned or EXPERT.bad)
      text = text .. (check == 1 and " [poisoned]" or " [bad FCS]")
    end
  end
  pinfo.cols.info = text
  return captured
end

DissectorTable.get("ethertype"):add(ETHERTYPE, scale_up)
