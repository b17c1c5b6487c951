#include "compiler/report/MemoryUse.h"

#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>

#include "runtime/artifact/ElementTypes.h"

namespace tessera::report {

MemoryPeak peakOf(const artifact::Program &program) {
  MemoryPeak peak;
  if (!program.buffers())
    return peak;
  std::map<std::uint64_t, std::int64_t> changes; // by step, in bytes
  for (const artifact::Buffer *each : *program.buffers()) {
    changes[each->first()] += std::int64_t(each->bytes());
    changes[std::uint64_t(each->last()) + 1] -= std::int64_t(each->bytes());
  }
  std::int64_t live = 0;
  for (const auto &[step, change] : changes) {
    live += change;
    if (std::uint64_t(live) > peak.bytes) {
      peak.bytes = std::uint64_t(live);
      peak.step = std::uint32_t(step);
    }
  }
  const auto &buffers = *program.buffers();
  for (flatbuffers::uoffset_t i = 0; i < buffers.size(); ++i)
    if (buffers.Get(i)->first() <= peak.step &&
        peak.step <= buffers.Get(i)->last())
      peak.alive.push_back(i);
  std::ranges::sort(peak.alive, [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(buffers.Get(b)->bytes(), a) <
           std::pair(buffers.Get(a)->bytes(), b);
  });
  return peak;
}

/// "8x128x256 f32".
static std::string typeText(const artifact::Buffer &buffer) {
  return fmt::format(
      "{}{}{}", fmt::join(buffer.shape()->begin(), buffer.shape()->end(), "x"),
      buffer.shape()->size() ? " " : "",
      artifact::EnumNameElementType(buffer.type()));
}

static Json stateJson(const artifact::Share &share) {
  std::map<artifact::Role, std::uint64_t> bytes;
  for (const artifact::Tensor *tensor : *share.state())
    bytes[tensor->role()] += tensor->bytes();
  Json state = Json::object();
  for (const auto &[role, sum] : bytes)
    state[artifact::EnumNameRole(role)] = sum;
  return state;
}

Json memoryJson(const artifact::Share &share,
                const artifact::Program &program) {
  Json json = {{"state", stateJson(share)},
               {"arena", program.arena_bytes()},
               {"io", program.io_bytes()},
               {"known", program.buffers() != nullptr}};
  if (!program.buffers())
    return json;
  Json uses = Json::array(), types = Json::array();
  for (const artifact::BufferUse use : artifact::EnumValuesBufferUse())
    uses.push_back(artifact::EnumNameBufferUse(use));
  std::map<std::string, std::size_t> typeNumbers;
  std::vector<std::uint64_t> use, type, bytes, offset, first, last;
  for (const artifact::Buffer *each : *program.buffers()) {
    const auto [entry, isNew] =
        typeNumbers.try_emplace(typeText(*each), typeNumbers.size());
    if (isNew)
      types.push_back(entry->first);
    use.push_back(std::uint64_t(each->use()));
    type.push_back(entry->second);
    bytes.push_back(each->bytes());
    offset.push_back(each->offset());
    first.push_back(each->first());
    last.push_back(each->last());
  }
  const MemoryPeak peak = peakOf(program);
  json["uses"] = std::move(uses);
  json["types"] = std::move(types);
  json["buffers"] = {{"use", use},       {"type", type},   {"bytes", bytes},
                     {"offset", offset}, {"first", first}, {"last", last}};
  json["peak"] = {
      {"step", peak.step}, {"bytes", peak.bytes}, {"alive", peak.alive}};
  return json;
}

} // namespace tessera::report
