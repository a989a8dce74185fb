"""What does the server do in one step?

`READ` answers several questions about one moment. `COMMIT` changes everything or nothing: it first makes sure
that what was read is still so and that every key holds what it should, and only then begins to write, since
Redis takes nothing back. It numbers the changes as it writes them into the log, so that their order is that
of the commits.

Both take a job as `ARGV[1]`. Keys stand in it by their places in `KEYS`, bytes by their places in `ARGV`, as
negative numbers: what Redis unpacks has no word for bytes.
"""

from __future__ import annotations

READ = """
local job, out = cmsgpack.unpack(ARGV[1]), {}

local function many(key, fields)
  local found = {}
  for at = 1, #fields, 1000 do
    local some = redis.call('HMGET', key, unpack(fields, at, math.min(at + 999, #fields)))
    for i = 1, math.min(1000, #fields - at + 1) do found[at + i - 1] = some[i] end
  end
  return found
end

for i, ask in ipairs(job) do
  local verb, key = ask[1], KEYS[ask[2]]
  if verb == 'INSIDE' then
    local ids = redis.call('ZRANGE', key, 0, -1)
    for at, member in ipairs(ids) do ids[at] = string.sub(member, 17) end
    out[i] = {ids, many(KEYS[ask[3]], ids)}
  elseif verb == 'SINCE' then
    local ids = redis.call('ZRANGEBYSCORE', key, '(' .. ask[5], '+inf')
    if #ids > ask[6] then
      out[i] = {ids}
    else
      out[i] = {ids, many(KEYS[ask[3]], ids), many(KEYS[ask[4]], ids)}
    end
  else
    local args = {}
    for at = 3, #ask do args[at - 2] = type(ask[at]) == 'number' and ARGV[-ask[at]] or ask[at] end
    out[i] = redis.call(verb, key, unpack(args))
  end
end
return out
"""

COMMIT = """
local job = cmsgpack.unpack(ARGV[1])
local number, done = job.number, KEYS[job.done]

local function pad(n) return string.format('%016.0f', n) end
local function text(arg) return type(arg) == 'number' and ARGV[-arg] or arg end

-- A writer that got no answer asks again with the same number: what is done is not done twice.
local last = redis.call('GET', done)
if last then
  local before, told = string.match(last, '^(%d+) (.*)$')
  if tonumber(before) == number then return {'done', told} end
  if tonumber(before) > number then return {'late'} end
end

for _, part in ipairs(job.parts) do
  local gate = redis.call('GET', KEYS[part.gate])
  if gate and gate ~= job.writer then return {'wait'} end
  for _, check in ipairs(part.checks) do
    local value, expected = redis.call('HGET', KEYS[check[1]], text(check[2])) or '', text(check[3])
    if string.sub(value, 1, math.max(16, #expected)) ~= expected then return {'changed'} end
  end
  for _, kind in ipairs(part.kinds) do
    local held = redis.call('TYPE', KEYS[kind[1]]).ok
    if held ~= 'none' and held ~= kind[2] then return {'broken', KEYS[kind[1]]} end
  end
end
if job.look == 1 then return {'done', ''} end

local told = {}
for _, part in ipairs(job.parts) do
  local meta = KEYS[part.meta]
  local counters = redis.call('HMGET', meta, 'seq', 'tick', 'life')
  local seq, tick = tonumber(counters[1] or '0'), tonumber(counters[2] or '0') + 1

  local function filled(arg)
    if type(arg) ~= 'table' then return text(arg) end
    local whole = ''
    for _, piece in ipairs(arg) do
      if type(piece) ~= 'number' or piece < 0 then
        piece = text(piece)
      else
        piece = pad(piece == 0 and tick or seq + piece)
      end
      whole = whole .. piece
    end
    return whole
  end

  local function act(command)
    local verb, key = command[1], KEYS[command[2]]
    if verb == 'JOIN' then
      local field = text(command[3])
      local value = redis.call('HGET', key, field)
      local rest = value and string.sub(value, 17) or '\\31'
      redis.call('HSET', key, field, pad(tick) .. rest .. text(command[4]) .. '\\31')
    elseif verb == 'PART' then
      local field = text(command[3])
      local value = redis.call('HGET', key, field)
      local from, to = string.find(value or '', '\\31' .. text(command[4]) .. '\\31', 17, true)
      if from then
        local rest = string.sub(value, 17, from) .. string.sub(value, to + 1)
        if rest == '\\31' then
          redis.call('HDEL', key, field)
        else
          redis.call('HSET', key, field, pad(tick) .. rest)
        end
      end
    elseif verb == 'MOST' then
      if tonumber(command[4]) > tonumber(redis.call('HGET', key, command[3]) or '-1') then
        redis.call('HSET', key, command[3], command[4])
      end
    else
      local args = {}
      for at = 3, #command do args[at - 2] = filled(command[at]) end
      redis.call(verb, key, unpack(args))
    end
  end

  -- What only frees memory goes first: the server lets it pass when memory is full, and then the rest too.
  for _, command in ipairs(part.frees) do act(command) end
  redis.call('HSET', meta, 'seq', pad(seq + #part.notes), 'tick', pad(tick))
  if not counters[3] then redis.call('HSET', meta, 'life', job.life) end
  for at, note in ipairs(part.notes) do
    redis.call('XADD', KEYS[part.log], string.format('%.0f-0', seq + at), 'c', text(note))
  end
  for _, command in ipairs(part.commands) do act(command) end
  if job.alone == 1 then redis.call('DEL', KEYS[part.gate]) end
  told[#told + 1] = pad(seq)
end
redis.call('SET', done, string.format('%.0f ', number) .. table.concat(told, ' '), 'PX', job.keep)
return {'done', table.concat(told, ' ')}
"""

LEAVE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
