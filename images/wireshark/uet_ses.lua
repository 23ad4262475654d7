-- SES headers of the Ultra Ethernet Transport dissector; `uet.lua` beside this file loads them.
--
-- By itself this file does nothing. Called with the fields, names and `add` of uet_fields.lua it hands back the
-- dissectors of the SES headers, by next_hdr. Source: UE Specification 1.0.1, section 3.4, tables 3-8, 3-9 and 3-11.

local f, NAMES, add = ...

-- Requests ------------------------------------------------------------------------------------------------------------

local RENDEZVOUS = { [0x06] = true, [0x0A] = true }
local DEFERRABLE = { [0x08] = true, [0x0B] = true }
local READY_TO_RESTART = 0x0C
local ATOMIC = { [0x03] = true, [0x04] = true, [0x0D] = true, [0x0E] = true }
local CSWAP, MSWAP = 0x0D, 0x13
-- These have match bits where others have a memory key.
local MATCHED = { [0x09] = true, [0x0A] = true, [0x0B] = true, [0x0D] = true, [0x0E] = true }

local function dissect_rendezvous(packet)
  local range = packet:take(24, "rendezvous extension")
  local tree = packet.tree:add(range, "SES rendezvous extension")
  add(tree, range, { "eager_length", 0, 4, "rendezvous.ri_generation", 4, 4, "rendezvous.pid_on_fep", 4, 4 })
  add(tree, range, { "rendezvous.resource_index", 4, 4, "read_offset", 8, 8, "read_key", 16, 8 })
  packet:say("eager %d B", range(0, 4):uint())
end

local function dissect_atomic(packet)
  local range = packet:take(4, "atomic extension")
  local tree = packet.tree:add(range, "SES atomic extension")
  local operation, datatype = range(0, 1):uint(), range(1, 1):uint()
  packet:named(tree, "amo_opcode", range(0, 1), NAMES.amo_opcodes, operation)
  packet:named(tree, "datatype", range(1, 1), NAMES.amo_types, datatype)
  add(tree, range, { "semantic_control", 2, 1 })
  packet:say("%s %s", NAMES.of(NAMES.amo_opcodes, operation), NAMES.of(NAMES.amo_types, datatype))
  if operation >= CSWAP and operation <= MSWAP then
    local operands = packet:take(32, "operands of the compare and swap extension")
    add(tree, operands, { "compare", 0, 16, "swap", 16, 16 })
  end
end

local function add_version(packet, tree, range)
  local item, version = tree:add(f.version, range), range:bitfield(0, 2)
  if version ~= 0 then
    packet:unknown(item, "version %d is unknown", version)
  end
end

-- The first 12 bytes of every request; small and medium ones have the length in the place of the message ID, are a
-- message each, and cannot be named by a rendezvous. Hands back opcode and length.
local function dissect_common(packet, tree, range, single)
  local opcode, length = range:bitfield(2, 6), range:bitfield(18, 14)
  packet:named(tree, "opcode", range(0, 1), NAMES.opcodes, opcode)
  add_version(packet, tree, range(1, 1))
  add(tree, range, { "dc", 1, 1, "ie", 1, 1, "rel", 1, 1, "hd", 1, 1, "eom", 1, 1, "som", 1, 1 })
  if not single then
    add(tree, range, { "message_id", 2, 2 })
  else
    tree:add(f.request_length, range(2, 2), length)
    if range:bitfield(14, 2) ~= 3 then
      packet:malformed("SOM and EOM must be set in a medium or small header")
    end
    if RENDEZVOUS[opcode] then
      packet:malformed("%s needs a message ID, and with it a standard header", NAMES.opcodes[opcode])
    end
  end
  add(tree, range, { "ri_generation", 4, 1, "job_id", 5, 3, "pid_on_fep", 8, 2, "resource_index", 10, 2 })
  return opcode, length
end

local function dissect_extension(packet, opcode)
  if RENDEZVOUS[opcode] then
    dissect_rendezvous(packet)
  elseif ATOMIC[opcode] then
    dissect_atomic(packet)
  end
end

local function dissect_small(packet)
  local range = packet:take(20, "small SES request")
  local tree = packet.tree:add(range, "SES request, small")
  local opcode, length = dissect_common(packet, tree, range, true)
  add(tree, range, { "buffer_offset", 12, 8 })
  packet:say("%s %d B", NAMES.of(NAMES.opcodes, opcode), length)
  dissect_extension(packet, opcode)
end

local function dissect_medium(packet)
  local range = packet:take(32, "medium SES request")
  local tree = packet.tree:add(range, "SES request, medium")
  local opcode, length = dissect_common(packet, tree, range, true)
  local with_header_data = range:bitfield(13, 1) == 1
  add(tree, range, { with_header_data and "header_data" or "buffer_offset", 12, 8 })
  add(tree, range, { "initiator", 20, 4, MATCHED[opcode] and "match_bits" or "memory_key", 24, 8 })
  packet:say("%s %d B", NAMES.of(NAMES.opcodes, opcode), length)
  dissect_extension(packet, opcode)
end

local function dissect_standard(packet)
  local range = packet:take(44, "standard SES request")
  local tree = packet.tree:add(range, "SES request, standard")
  local opcode = dissect_common(packet, tree, range, false)
  if DEFERRABLE[opcode] then
    add(tree, range, { "initiator_restart_token", 12, 4, "target_restart_token", 16, 4 })
  else
    add(tree, range, { "buffer_offset", 12, 8 })
  end
  add(tree, range, { "initiator", 20, 4 })
  if opcode == READY_TO_RESTART then
    add(tree, range, { "initiator_restart_token", 24, 4, "target_restart_token", 28, 4 })
  else
    add(tree, range, { MATCHED[opcode] and "match_bits" or "memory_key", 24, 8 })
  end
  packet:say("%s %d B msg %d", NAMES.of(NAMES.opcodes, opcode), range(40, 4):uint(), range(2, 2):uint())
  if range:bitfield(15, 1) == 1 then
    if range:bitfield(13, 1) == 1 then
      add(tree, range, { "header_data", 32, 8 })
    end
  else
    add(tree, range, { "payload_length", 32, 4, "message_offset", 36, 4 })
    packet:say("at %d", range(36, 4):uint())
  end
  add(tree, range, { "request_length", 40, 4 })
  dissect_extension(packet, opcode)
end

-- Responses -----------------------------------------------------------------------------------------------------------

local function dissect_response_start(packet, tree, range)
  local opcode, code = range:bitfield(2, 6), range:bitfield(10, 6)
  packet:named(tree, "list", range(0, 1), NAMES.lists, range:bitfield(0, 2))
  packet:named(tree, "response_opcode", range(0, 1), NAMES.response_opcodes, opcode)
  add_version(packet, tree, range(1, 1))
  packet:named(tree, "return_code", range(1, 1), NAMES.return_codes, code)
  packet:say("%s %s", NAMES.of(NAMES.response_opcodes, opcode), NAMES.of(NAMES.return_codes, code))
end

local function dissect_response(packet)
  local range = packet:take(12, "SES response")
  local tree = packet.tree:add(range, "SES response")
  dissect_response_start(packet, tree, range)
  add(tree, range, { "message_id", 2, 2, "ri_generation", 4, 1, "job_id", 5, 3, "modified_length", 8, 4 })
  packet:say("%d B msg %d", range(8, 4):uint(), range(2, 2):uint())
end

local function dissect_response_data(packet)
  local range = packet:take(20, "SES response with data")
  local tree = packet.tree:add(range, "SES response with data")
  dissect_response_start(packet, tree, range)
  local length = range:bitfield(82, 14)
  add(tree, range, { "message_id", 2, 2, "job_id", 5, 3, "read_request_message_id", 8, 2 })
  tree:add(f.payload_length, range(10, 2), length)
  add(tree, range, { "modified_length", 12, 4, "message_offset", 16, 4 })
  packet:say("%d B at %d msg %d of msg %d", length, range(16, 4):uint(), range(2, 2):uint(), range(8, 2):uint())
end

local function dissect_response_data_small(packet)
  local range = packet:take(12, "small SES response with data")
  local tree = packet.tree:add(range, "SES response with data, small")
  dissect_response_start(packet, tree, range)
  tree:add(f.payload_length, range(2, 2), range:bitfield(18, 14))
  add(tree, range, { "job_id", 5, 3, "original_request_psn", 8, 4 })
  packet:say("%d B of psn %d", range:bitfield(18, 14), range(8, 4):uint())
end

return {
  dissect_small, dissect_medium, dissect_standard, dissect_response, dissect_response_data,
  dissect_response_data_small,
}
