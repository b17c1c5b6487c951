#include "runtime/infer/DecodePrograms.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace tessera {
namespace {

/// Writes the bits of the tokens that the sampling allows, of `vocab` tokens;
/// all are set before.
void writeAllowed(const TokenSampling &sampling, int64_t vocab,
                  std::span<int32_t> words) {
  std::span runs(reinterpret_cast<uint32_t *>(words.data()), words.size());
  if (sampling.allowed)
    return sampling.allowed->writeRuns(runs);
  if (sampling.choices == vocab)
    return;
  // Run r starts at token r × (number of words).
  for (size_t run = 0; run < 32; ++run) {
    size_t first = std::min(run * runs.size(), size_t(sampling.choices));
    size_t count = std::min(runs.size(), size_t(sampling.choices) - first);
    for (uint32_t &word : runs.subspan(count))
      word &= ~(uint32_t(1) << run);
  }
}

} // namespace

StatusOr<std::unique_ptr<DecodePrograms>>
DecodePrograms::create(hal::Session &session) {
  StatusOr<DecoderPorts> ports = readDecoderPorts(session);
  if (!ports.ok())
    return ports.status();
  return std::unique_ptr<DecodePrograms>(
      new DecodePrograms(session, ports.take()));
}

DecodePrograms::DecodePrograms(hal::Session &session, DecoderPorts given)
    : session(session), ports(std::move(given)) {
  const auto bucket = size_t(sizes.buckets.back());
  const auto most = std::max(size_t(sizes.chunk), bucket);
  for (std::vector<int32_t> *each : {&ids, &slots, &starts, &lengths})
    each->reserve(most);
  table.reserve(size_t(ports.tableColumns) * bucket);
  scores.resize(size_t(sizes.vocab) * bucket);
  chosen.resize(bucket);
  stateLengths.resize(size_t(sizes.states));
  if (ports.hasLogSums)
    logSums.resize(bucket);
}

//===--- running ----------------------------------------------------------===//

Status DecodePrograms::checkTokens(std::span<const int32_t> tokens) const {
  for (int32_t token : tokens)
    if (token < 0 || token >= sizes.vocab)
      return Status::error("token {} is outside the vocabulary of {}", token,
                           sizes.vocab);
  return Status::success();
}

Status DecodePrograms::checkText(const CachedText &text, int64_t added) const {
  int64_t tokens = text.length + added;
  if (tokens > sizes.context)
    return Status::error("a sequence of {} tokens is longer than the context "
                         "of {}; for a model directory, raise it by --set "
                         "inference.context=N, up to the model's own limit",
                         tokens, sizes.context);
  auto held = int64_t(text.pages.size());
  if (held * sizes.page < tokens || held > ports.tableColumns)
    return Status::error("{} pages of {} tokens cannot hold a sequence of {}",
                         held, sizes.page, tokens);
  if (text.adapter < -1 || text.adapter >= sizes.adapters)
    return Status::error("adapter slot {} is not one of the program's {}",
                         text.adapter, sizes.adapters);
  return checkState(text);
}

// A state has no past: what it is of must be all that the sequence has.
Status DecodePrograms::checkState(const CachedText &text) const {
  if (sizes.states == 0)
    return Status::success();
  if (text.state < 0 || text.state >= sizes.states)
    return Status::error("state slot {} is not one of the program's {}",
                         text.state, sizes.states);
  const int64_t read = stateLengths[size_t(text.state)];
  if (text.length != 0 && text.length != read)
    return Status::error("the state in slot {} is of {} tokens, the sequence "
                         "has {}",
                         text.state, read, text.length);
  return Status::success();
}

Status
DecodePrograms::checkStates(std::span<const CachedText> sequences) const {
  if (sizes.states == 0)
    return Status::success();
  std::vector<int32_t> used;
  for (const CachedText &text : sequences)
    used.push_back(text.state);
  std::ranges::sort(used);
  const auto twice = std::ranges::adjacent_find(used);
  if (twice != used.end())
    return Status::error("two rows have the state in slot {}", *twice);
  return Status::success();
}

void DecodePrograms::countStates(std::span<const CachedText> sequences,
                                 int64_t added) {
  if (sizes.states > 0)
    for (const CachedText &text : sequences)
      stateLengths[size_t(text.state)] = text.length + added;
}

// Rows without an adapter are the last.
void DecodePrograms::orderRows(std::span<const CachedText> sequences,
                               int64_t added) {
  order.resize(sequences.size());
  rows.resize(sequences.size());
  std::iota(order.begin(), order.end(), size_t(0));
  if (sizes.adapters > 0) {
    std::ranges::sort(order, {}, [&](size_t sequence) {
      return std::pair(uint32_t(sequences[sequence].adapter), sequence);
    });
    adapterOffsets.assign(size_t(sizes.adapters) + 1, 0);
    for (const CachedText &text : sequences)
      if (text.adapter >= 0)
        adapterOffsets[size_t(text.adapter) + 1] += int32_t(added);
    std::partial_sum(adapterOffsets.begin(), adapterOffsets.end(),
                     adapterOffsets.begin());
  }
  for (size_t row = 0; row < order.size(); ++row)
    rows[order[row]] = row;
}

int32_t DecodePrograms::slotOf(const CachedText &text, int64_t position) const {
  return int32_t(text.pages[position / sizes.page] * sizes.page +
                 position % sizes.page);
}

// Programs do not change their inputs, so an unchanged input is not written
// again: on a GPU every write waits.
Status DecodePrograms::writeBytes(const std::string &program,
                                  std::string_view name,
                                  std::span<const std::byte> bytes) {
  auto &ofProgram = written[program];
  auto found = ofProgram.find(name);
  if (found == ofProgram.end())
    found = ofProgram.emplace(name, std::vector<std::byte>()).first;
  std::vector<std::byte> &before = found->second;
  if (std::ranges::equal(before, bytes))
    return Status::success();
  before.clear(); // after an error the contents are unknown
  TESSERA_RETURN_IF_ERROR(session.writeInput(program, name, bytes));
  before.assign(bytes.begin(), bytes.end());
  return Status::success();
}

Status DecodePrograms::writeSlots(const std::string &program,
                                  std::span<const CachedText> sequences,
                                  int64_t bucket, int64_t added) {
  table.assign(bucket * ports.tableColumns, 0);
  starts.assign(bucket, 0);
  lengths.assign(bucket, 0);
  states.assign(bucket, -1);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const CachedText &text = sequences[order[i]];
    std::ranges::copy(text.pages, table.begin() + long(i) * ports.tableColumns);
    starts[i] = int32_t(text.length);
    lengths[i] = int32_t(text.length + added);
    states[i] = text.state;
  }
  if (sizes.states > 0)
    TESSERA_RETURN_IF_ERROR(write<int32_t>(program, "states", states));
  if (sizes.adapters > 0)
    TESSERA_RETURN_IF_ERROR(
        write<int32_t>(program, "adapters", adapterOffsets));
  TESSERA_RETURN_IF_ERROR(write<int32_t>(program, "tokens", ids));
  TESSERA_RETURN_IF_ERROR(write<int32_t>(program, "slots", slots));
  TESSERA_RETURN_IF_ERROR(write<int32_t>(program, "table", table));
  TESSERA_RETURN_IF_ERROR(write<int32_t>(program, "starts", starts));
  return write<int32_t>(program, "lengths", lengths);
}

Status DecodePrograms::checkSamplings(std::span<const TokenSampling> samplings,
                                      int64_t rows) const {
  if (!samplings.empty() && int64_t(samplings.size()) != rows)
    return Status::error("{} requests {} rows", samplings.size(), rows);
  for (const TokenSampling &sampling : samplings)
    if (!(sampling.choice.temperature >= 0 && sampling.choice.minP >= 0 &&
          sampling.choice.minP <= 1))
      return Status::error("invalid sampling: temperature {}, min-p {}",
                           sampling.choice.temperature, sampling.choice.minP);
    else if (int64_t(sampling.changes.size()) > sizes.changes ||
             sampling.choices < 1 || sampling.choices > sizes.vocab)
      return Status::error(
          "a sampling changes {} logits and has {} choices; the "
          "limits are {} and {}",
          sampling.changes.size(), sampling.choices, sizes.changes,
          sizes.vocab);
  return Status::success();
}

Status DecodePrograms::writeSamplings(const std::string &program,
                                      std::span<const TokenSampling> samplings,
                                      int64_t bucket) {
  allowed.assign(bucket * ports.allowedWords, -1);
  changed.assign(bucket * sizes.changes, -1);
  changes.resize(4 * changed.size());
  options.assign(2 * bucket, 0);
  limits.assign(4 * bucket, 0);
  for (size_t row = 0; row < samplings.size(); ++row) {
    const TokenSampling &sampling = samplings[order[row]];
    writeAllowed(sampling, sizes.vocab,
                 std::span(allowed).subspan(row * size_t(ports.allowedWords),
                                            size_t(ports.allowedWords)));
    size_t at = row * size_t(sizes.changes);
    for (const auto &[token, change] : sampling.changes) {
      changed[at] = token;
      const float values[] = {change.added, change.above, change.below,
                              change.subtracted};
      std::ranges::copy(values, changes.begin() + long(4 * at++));
    }
    const TokenChoice &choice = sampling.choice;
    options[2 * row] = choice.temperature, options[2 * row + 1] = choice.minP;
    const uint32_t words[] = {choice.topK, choice.topP, uint32_t(choice.random),
                              uint32_t(choice.random >> 32)};
    std::ranges::copy(words, limits.begin() + long(4 * row));
  }
  TESSERA_RETURN_IF_ERROR(write<int32_t>(program, "allowed", allowed));
  TESSERA_RETURN_IF_ERROR(write<int32_t>(program, "changed", changed));
  TESSERA_RETURN_IF_ERROR(write<float>(program, "changes", changes));
  TESSERA_RETURN_IF_ERROR(write<float>(program, "options", options));
  return write<int32_t>(program, "limits", limits);
}

Status DecodePrograms::runFor(const std::string &program, int64_t bucket,
                              const Wanted &wanted) {
  TESSERA_RETURN_IF_ERROR(writeSamplings(program, wanted.samplings, bucket));
  TESSERA_RETURN_IF_ERROR(session.run(program));
  if (!wanted.samplings.empty())
    TESSERA_RETURN_IF_ERROR(session.readOutput(
        program, "token",
        std::as_writable_bytes(std::span(chosen).first(size_t(bucket)))));
  if (!wanted.logits)
    return Status::success();
  if (!logSums.empty())
    TESSERA_RETURN_IF_ERROR(session.readOutput(
        program, kLogSums,
        std::as_writable_bytes(std::span(logSums).first(size_t(bucket)))));
  return session.readOutput(program, "logits",
                            std::as_writable_bytes(std::span(scores).first(
                                size_t(bucket * sizes.vocab))));
}

Status DecodePrograms::checkPrefill(const CachedText &text,
                                    std::span<const int32_t> tokens,
                                    const Wanted &wanted) const {
  auto count = int64_t(tokens.size());
  if (count < 1 || count > sizes.chunk)
    return Status::error("a prefill chunk of {} tokens; it must have 1 to {}",
                         count, sizes.chunk);
  TESSERA_RETURN_IF_ERROR(checkTokens(tokens));
  TESSERA_RETURN_IF_ERROR(checkText(text, count));
  return checkSamplings(wanted.samplings, 1);
}

Status DecodePrograms::prefill(const CachedText &text,
                               std::span<const int32_t> tokens,
                               const Wanted &wanted) {
  TESSERA_RETURN_IF_ERROR(checkPrefill(text, tokens, wanted));
  auto count = int64_t(tokens.size());
  const int64_t padded = *std::ranges::lower_bound(ports.prompts, count);
  const std::string program = prefillOf(padded);
  orderRows(std::span(&text, 1), count);
  ids.assign(tokens.begin(), tokens.end());
  ids.resize(padded, 0);
  slots.assign(padded, -1);
  for (int64_t i = 0; i < count; ++i)
    slots[i] = slotOf(text, text.length + i);
  TESSERA_RETURN_IF_ERROR(writeSlots(program, std::span(&text, 1), 1, count));
  int32_t last[] = {int32_t(count - 1)};
  TESSERA_RETURN_IF_ERROR(write<int32_t>(program, "last", last));
  countStates(std::span(&text, 1), count);
  return runFor(program, 1, wanted);
}

Status DecodePrograms::checkDecode(std::span<const CachedText> sequences,
                                   std::span<const int32_t> tokens,
                                   const Wanted &wanted) const {
  auto count = int64_t(sequences.size());
  if (count == 0 || count > sizes.buckets.back() ||
      tokens.size() != sequences.size())
    return Status::error(
        "{} tokens for {} sequences; 1 to {} sequences decode together",
        tokens.size(), count, sizes.buckets.back());
  TESSERA_RETURN_IF_ERROR(checkTokens(tokens));
  for (const CachedText &text : sequences)
    TESSERA_RETURN_IF_ERROR(checkText(text, 1));
  TESSERA_RETURN_IF_ERROR(checkStates(sequences));
  return checkSamplings(wanted.samplings, count);
}

Status DecodePrograms::decode(std::span<const CachedText> sequences,
                              std::span<const int32_t> tokens,
                              const Wanted &wanted) {
  TESSERA_RETURN_IF_ERROR(checkDecode(sequences, tokens, wanted));
  auto count = int64_t(sequences.size());
  const int64_t bucket = *std::ranges::lower_bound(sizes.buckets, count);
  const std::string program = decodeOf(bucket);
  orderRows(sequences, 1);
  ids.assign(bucket, 0);
  slots.assign(bucket, -1);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const CachedText &text = sequences[order[i]];
    ids[i] = tokens[order[i]];
    slots[i] = slotOf(text, text.length);
  }
  TESSERA_RETURN_IF_ERROR(writeSlots(program, sequences, bucket, 1));
  countStates(sequences, 1);
  return runFor(program, bucket, wanted);
}

} // namespace tessera
