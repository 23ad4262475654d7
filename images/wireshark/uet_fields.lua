-- Names, numbers and fields of the Ultra Ethernet Transport dissector; `uet.lua` beside this file loads them.
--
-- By itself this file does nothing. It returns a function that makes the fields below a prefix ("uet"), and hands back
-- them by name, in a list, the tables of names, and a function that puts fields into a tree. Source of the numbers: UE
-- Specification 1.0.1, tables 3-16 (next header), 3-17 (opcodes), 3-44 (REQ), 3-48 (cc_type), 3-58 (NACK codes).

local names = {}

-- Names of numbers ----------------------------------------------------------------------------------------------------

names.types = {
  [0] = "RESERVED", "TSS", "RUD_REQ", "ROD_REQ", "RUDI_REQ", "RUDI_RESP", "UUD_REQ", "ACK", "ACK_CC", "ACK_CCX", "NACK",
  "CP", "NACK_CCX", "RUD_CC_REQ", "ROD_CC_REQ",
}

names.next_headers = {
  [0] = "NONE", "REQUEST_SMALL", "REQUEST_MEDIUM", "REQUEST_STD", "RESPONSE", "RESPONSE_DATA", "RESPONSE_DATA_SMALL",
}

names.control_types = {
  [0] = "NOOP", "ACK_REQ", "CLEAR_CMD", "CLEAR_REQ", "CLOSE_CMD", "CLOSE_REQ", "PROBE", "CREDIT", "CREDIT_REQ",
  "NEGOTIATION",
}

names.req = { [0] = "none", "REQ_CLEAR", "REQ_CLOSE", "reserved" }

names.cc_types = { [0] = "NSCC", "CREDIT" }
for kind = 2, 15 do
  names.cc_types[kind] = string.format(kind < 14 and "RESERVED_%d" or "PROPRIETARY_%d", kind)
end

names.nack_codes = {
  "TRIMMED", "TRIMMED_LASTHOP", "TRIMMED_ACK", "NO_PDC_AVAIL", "NO_CCC_AVAIL", "NO_BITMAP", "NO_PKT_BUFFER",
  "NO_GTD_DEL_AVAIL", "NO_SES_MSG_AVAIL", "NO_RESOURCE", "PSN_OOR_WINDOW",
  [0x0D] = "ROD_OOO", [0x0E] = "INV_DPDCID", [0x0F] = "PDC_HDR_MISMATCH", [0x10] = "CLOSING",
  [0x11] = "CLOSING_IN_ERR", [0x12] = "PKT_NOT_RCVD", [0x13] = "GTD_RESP_UNAVAIL", [0x14] = "ACK_WITH_DATA",
  [0x15] = "INVALID_SYN", [0x16] = "PDC_MODE_MISMATCH", [0x17] = "NEW_START_PSN", [0x18] = "RCVD_SES_PROCG",
  [0x19] = "UNEXP_EVENT", [0x1A] = "RCVR_INFER_LOSS", [0xFD] = "EXP_NACK_NORMAL", [0xFE] = "EXP_NACK_ERR",
  [0xFF] = "EXP_NACK_FATAL",
}

names.opcodes = {
  [0] = "NO_OP", "WRITE", "READ", "ATOMIC", "FETCHING_ATOMIC", "SEND", "RENDEZVOUS_SEND", "DATAGRAM_SEND",
  "DEFERRABLE_SEND", "TAGGED_SEND", "RENDEZVOUS_TSEND", "DEFERRABLE_TSEND", "DEFERRABLE_RTR", "TSEND_ATOMIC",
  "TSEND_FETCH_ATOMIC", "MSG_ERROR",
}

names.amo_opcodes = {
  [0] = "MIN", "MAX", "SUM", "DIFF", "PROD", "LOR", "LAND", "BOR", "BAND", "LXOR", "BXOR", "READ", "WRITE", "CSWAP",
  "CSWAP_NE", "CSWAP_LE", "CSWAP_LT", "CSWAP_GE", "CSWAP_GT", "MSWAP", "INVAL",
}

names.amo_types = {
  [0] = "INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "INT128", "UINT128", "FLOAT",
  "DOUBLE", "FLOAT_COMPLEX", "DOUBLE_COMPLEX", "LONG_DOUBLE", "LONG_DOUBLE_COMPLEX", "BF16", "FP16",
}

names.response_opcodes = { [0] = "DEFAULT_RESPONSE", "RESPONSE", "RESPONSE_W_DATA", "NO_RESPONSE" }

names.lists = { [0] = "EXPECTED", "OVERFLOW", "RESERVED_2", "RESERVED_3" }

names.return_codes = {
  [0] = "NULL", "OK", "BAD_GENERATION", "DISABLED", "DISABLED_GEN", "NO_MATCH", "UNSUPPORTED_OP", "UNSUPPORTED_SIZE",
  "AT_INVALID", "AT_PERM", "AT_ATS_ERROR", "AT_NO_TRANS", "AT_OUT_OF_RANGE", "HOST_POISONED", "HOST_UNSUCCESS_CMPL",
  "AMO_UNSUPPORTED_OP", "AMO_UNSUPPORTED_DT", "AMO_UNSUPPORTED_SIZE", "AMO_UNALIGNED", "AMO_FP_NAN",
  "AMO_FP_UNDERFLOW", "AMO_FP_OVERFLOW", "AMO_FP_INEXACT", "PERM_VIOLATION", "OP_VIOLATION", "BAD_INDEX", "BAD_PID",
  "BAD_JOB_ID", "BAD_MKEY", "BAD_ADDR", "CANCELLED", "UNDELIVERABLE", "UNCOR", "UNCOR_TRNSNT", "TOO_LONG",
  "INITIATOR_ERR", "DROPPED", [0x30] = "VENDOR_30", [0x31] = "VENDOR_31", [0x32] = "VENDOR_32", [0x33] = "VENDOR_33",
  [0x34] = "VENDOR_34", [0x35] = "VENDOR_35", [0x36] = "VENDOR_36", [0x37] = "VENDOR_37", [0x3E] = "EXTENDED",
}
for code = 0x30, 0x37 do
  names.return_codes[code] = string.format("VENDOR_%X", code)
end

-- Fields --------------------------------------------------------------------------------------------------------------

local rows = {
  -- kind, name, label, display, names, mask
  { "uint16", "type", "Type", base.DEC, names.types, 0xF800 },
  { "uint16", "next_hdr", "Next header", base.DEC, names.next_headers, 0x0780 },
  { "uint16", "ctl_type", "Control type", base.DEC, names.control_types, 0x0780 },
  { "uint16", "flags", "Flags", base.HEX, nil, 0x007F },
  { "bool", "flags.retx", "RETX", 16, nil, 0x0010 },
  { "bool", "flags.ar", "AR (ACK asked for)", 16, nil, 0x0008 },
  { "bool", "flags.syn", "SYN", 16, nil, 0x0004 },
  { "bool", "flags.m", "M (it was marked CE)", 16, nil, 0x0020 },
  { "bool", "flags.p", "P (ACK of a probe)", 16, nil, 0x0008 },
  { "uint16", "flags.req", "REQ", base.DEC, names.req, 0x0006 },
  { "bool", "flags.nt", "NT (NACK of a RUDI request)", 16, nil, 0x0008 },
  { "bool", "flags.isrod", "ISROD", 16, nil, 0x0020 },

  { "int16", "clear_psn_offset", "CLEAR_PSN offset", base.DEC },
  { "uint32", "clear_psn", "CLEAR_PSN", base.DEC },
  { "uint32", "psn", "PSN", base.DEC },
  { "uint16", "spdcid", "SPDCID", base.DEC },
  { "uint16", "dpdcid", "DPDCID", base.DEC },
  { "uint16", "pdcid", "PDCID of either side", base.DEC },
  { "uint16", "pdc_info", "PDC info", base.HEX, nil, 0xF000 },
  { "uint16", "psn_offset", "PSN offset", base.DEC, nil, 0x0FFF },
  { "uint32", "start_psn", "Start_PSN", base.DEC },
  { "uint8", "ccc_id", "CCC ID", base.DEC },
  { "uint24", "credit_target", "Credit target (256 B)", base.DEC },

  { "int16", "ack_psn_offset", "ACK_PSN offset", base.DEC },
  { "uint32", "ack_psn", "ACK_PSN", base.DEC },
  { "uint16", "probe_opaque", "Probe opaque", base.HEX },
  { "uint32", "cack_psn", "CACK_PSN", base.DEC },
  { "uint8", "cc_type", "CC type", base.DEC, names.cc_types, 0xF0 },
  { "uint8", "cc_flags", "CC flags", base.HEX, nil, 0x0F },
  { "uint8", "ccx_type", "CCX type", base.DEC, nil, 0xF0 },
  { "uint8", "mpr", "MPR (128 PSNs)", base.DEC },
  { "int16", "sack_psn_offset", "SACK PSN offset", base.DEC },
  { "uint64", "sack_bitmap", "SACK bitmap", base.HEX },
  { "uint32", "sack_base_psn", "SACK base PSN", base.DEC },
  { "string", "sack_psns", "Received" },
  { "uint16", "service_time", "Service time (128 ns)", base.DEC },
  { "uint32", "service_time_ns", "Service time in ns", base.DEC },
  { "bool", "rc", "Restore cwnd", 8, nil, 0x80 },
  { "uint8", "rcv_cwnd_pend", "Receiver's cwnd penalty", base.DEC, nil, 0x7F },
  { "uint24", "rcvd_bytes", "Received (256 B)", base.DEC },
  { "uint16", "ooo_count", "Out of order count", base.DEC },
  { "uint24", "credit", "Credit (256 B)", base.DEC },
  { "bytes", "cc_state", "CC state", base.NONE },

  { "uint8", "nack_code", "NACK code", base.HEX, names.nack_codes },
  { "uint8", "vendor_code", "Vendor code", base.HEX },
  { "uint32", "nack_psn", "NACK_PSN", base.DEC },
  { "uint32", "nack_pkt_id", "NACK packet ID", base.DEC },
  { "uint8", "nccx_type", "NCCX type", base.DEC, nil, 0xF0 },
  { "uint32", "payload", "Payload of the code or control type", base.HEX },
  { "uint16", "ack_req_message_id", "Message ID asked about", base.DEC },
  { "uint32", "pkt_id", "Packet ID", base.DEC },

  { "uint8", "opcode", "Opcode", base.HEX, names.opcodes, 0x3F },
  { "uint8", "version", "Version", base.DEC, nil, 0xC0 },
  { "bool", "dc", "DC (delivery complete)", 8, nil, 0x20 },
  { "bool", "ie", "IE (initiator error)", 8, nil, 0x10 },
  { "bool", "rel", "REL (relative addressing)", 8, nil, 0x08 },
  { "bool", "hd", "HD (header data present)", 8, nil, 0x04 },
  { "bool", "eom", "EOM", 8, nil, 0x02 },
  { "bool", "som", "SOM", 8, nil, 0x01 },
  { "uint16", "message_id", "Message ID", base.DEC },
  { "uint8", "ri_generation", "RI generation", base.DEC },
  { "uint24", "job_id", "JobID", base.DEC },
  { "uint16", "pid_on_fep", "PIDonFEP", base.DEC, nil, 0x0FFF },
  { "uint16", "resource_index", "Resource index", base.DEC, nil, 0x0FFF },
  { "uint64", "buffer_offset", "Buffer offset", base.DEC },
  { "uint32", "initiator_restart_token", "Initiator's restart token", base.HEX },
  { "uint32", "target_restart_token", "Target's restart token", base.HEX },
  { "uint32", "initiator", "Initiator", base.HEX },
  { "uint64", "memory_key", "Memory key", base.HEX },
  { "uint64", "match_bits", "Match bits", base.HEX },
  { "uint64", "header_data", "Header data", base.HEX },
  { "uint32", "payload_length", "Payload length", base.DEC, nil, 0x3FFF },
  { "uint32", "message_offset", "Message offset", base.DEC },
  { "uint32", "request_length", "Request length", base.DEC },

  { "uint32", "eager_length", "Eager length", base.DEC },
  { "uint32", "rendezvous.ri_generation", "RI generation", base.DEC, nil, 0xFF000000 },
  { "uint32", "rendezvous.pid_on_fep", "PIDonFEP", base.DEC, nil, 0x00FFF000 },
  { "uint32", "rendezvous.resource_index", "Resource index", base.DEC, nil, 0x00000FFF },
  { "uint64", "read_offset", "Read offset", base.DEC },
  { "uint64", "read_key", "Memory key or match bits of the READ", base.HEX },
  { "uint8", "amo_opcode", "Atomic operation", base.HEX, names.amo_opcodes },
  { "uint8", "datatype", "Data type", base.HEX, names.amo_types },
  { "uint8", "semantic_control", "Semantic control", base.HEX },
  { "bytes", "compare", "Compare", base.NONE },
  { "bytes", "swap", "Swap", base.NONE },

  { "uint8", "list", "List", base.DEC, names.lists, 0xC0 },
  { "uint8", "response_opcode", "Response opcode", base.HEX, names.response_opcodes, 0x3F },
  { "uint8", "return_code", "Return code", base.HEX, names.return_codes, 0x3F },
  { "uint32", "modified_length", "Modified length", base.DEC },
  { "uint16", "read_request_message_id", "Message ID of the read request", base.DEC },
  { "uint32", "original_request_psn", "PSN of the request", base.DEC },

  { "uint8", "tss.type", "Type", base.DEC, names.types, 0xF8 },
  { "bool", "tss.sp", "SP (SSI present)", 8, nil, 0x04 },
  { "bool", "tss.an", "AN (association number)", 8, nil, 0x01 },
  { "uint24", "tss.sdi", "SDI (secure domain)", base.DEC },
  { "uint32", "tss.ssi", "SSI (secure source)", base.HEX },
  { "uint16", "tss.epoch", "TSC epoch", base.DEC },
  { "uint64", "tss.counter", "TSC counter", base.DEC },
  { "bytes", "tss.encrypted", "Encrypted", base.NONE },
  { "bytes", "tss.icv", "ICV", base.NONE },

  { "bool", "trimmed", "Trimmed by a switch" },
  { "uint32", "trimmed_bytes", "Bytes that were trimmed off", base.DEC },
  { "bytes", "data", "Data", base.NONE },
  { "uint32", "data_length", "Data length", base.DEC },
}

-- Name of a number.
function names.of(table, value)
  return table[value] or string.format("0x%02X", value)
end

return function(prefix)
  local f, list = {}, {}
  for _, row in ipairs(rows) do
    local kind, name, label, display, values, mask = row[1], row[2], row[3], row[4], row[5], row[6]
    f[name] = ProtoField[kind](prefix .. "." .. name, label, display, values, mask)
    list[#list + 1] = f[name]
  end
  -- Fields of `range`: name, offset and length in turn.
  local function add(tree, range, layout)
    for i = 1, #layout, 3 do
      tree:add(f[layout[i]], range(layout[i + 1], layout[i + 2]))
    end
  end
  return f, list, names, add
end
