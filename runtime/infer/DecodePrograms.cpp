#include "runtime/infer/DecodePrograms.h"
#include "runtime/recipe/Recipe.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

namespace tessera {
namespace {

using artifact::ElementType;

/// An output of programs with inference.numerics: training.
constexpr std::string_view kLogSums = "log_sums";

/// N of "decode_N".
std::optional<int64_t> numberAfter(std::string_view name,
                                   std::string_view prefix) {
  if (!name.starts_with(prefix))
    return std::nullopt;
  name.remove_prefix(prefix.size());
  int64_t number = 0;
  auto [end, code] =
      std::from_chars(name.data(), name.data() + name.size(), number);
  if (code != std::errc() || end != name.data() + name.size() || number < 1)
    return std::nullopt;
  return number;
}

Status notForInference(const hal::Session &session, std::string_view what) {
  return Status::error(
      "this program does not decode: {}; compile the model with --mode infer "
      "(it was made by: {})",
      what, session.artifact().rebuild_command()->string_view());
}

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
  std::unique_ptr<DecodePrograms> programs(new DecodePrograms(session));
  TESSERA_RETURN_IF_ERROR(programs->readShape());
  const DecoderShape &sizes = programs->sizes;
  int64_t most = std::max(sizes.chunk, sizes.buckets.back());
  for (std::vector<int32_t> *each : {&programs->ids, &programs->slots,
                                     &programs->starts, &programs->lengths})
    each->reserve(most);
  programs->table.reserve(programs->tableColumns * sizes.buckets.back());
  programs->scores.resize(sizes.vocab * sizes.buckets.back());
  programs->chosen.resize(sizes.buckets.back());
  return programs;
}

Status DecodePrograms::readShape() {
  for (const artifact::Program *program : *session.code().programs()) {
    std::string name = program->name()->str();
    if (auto batch = numberAfter(name, "decode_")) {
      sizes.buckets.push_back(*batch);
    } else if (auto tokens = numberAfter(name, "prefill_")) {
      sizes.chunk = *tokens;
      prefillProgram = name;
    }
  }
  std::sort(sizes.buckets.begin(), sizes.buckets.end());
  if (sizes.buckets.empty() || prefillProgram.empty())
    return notForInference(session, "it has no prefill and decode programs");
  TESSERA_RETURN_IF_ERROR(readCaches());
  for (const hal::TensorInfo &tensor : session.outputs(prefillProgram))
    if (tensor.name == "logits" && tensor.shape.size() == 2)
      sizes.vocab = tensor.shape[1];
    else if (tensor.name == kLogSums)
      logSums.resize(sizes.buckets.back());
  for (const hal::TensorInfo &tensor : session.inputs(prefillProgram))
    if (tensor.name == "adapters" && tensor.elements() > 1) {
      sizes.adapters = int64_t(tensor.elements()) - 1;
    } else if (tensor.shape.size() == 2) {
      if (tensor.name == "table")
        tableColumns = tensor.shape[1];
      else if (tensor.name == "allowed")
        allowedWords = tensor.shape[1];
      else if (tensor.name == "changed")
        sizes.changes = tensor.shape[1];
    }
  // The artifact's reader has checked that the block table and the logits fit
  // its arena, so the products below stay far under 2^63.
  if (sizes.vocab < 1 || sizes.vocab > INT32_MAX || tableColumns < 1 ||
      tableColumns > INT32_MAX)
    return notForInference(session, "it has no block table or no logits");
  if (sizes.changes < 1 || sizes.vocab > kMostChoices ||
      allowedWords < (sizes.vocab + 31) / 32)
    return notForInference(session, "it does not sample tokens");
  TESSERA_RETURN_IF_ERROR(checkPorts(prefillProgram, 1, sizes.chunk));
  for (int64_t batch : sizes.buckets)
    TESSERA_RETURN_IF_ERROR(
        checkPorts(fmt::format("decode_{}", batch), batch, 1));
  auto recipe = recipe::parseRecipe(session.artifact().recipe()->string_view(),
                                    "the artifact's recipe");
  if (!recipe.ok())
    return recipe.status();
  sizes.context =
      std::min(recipe->inference.context, tableColumns * sizes.page);
  sizes.hasWholePrompts =
      recipe->attention.prompts == recipe::Prompts::Bidirectional;
  return Status::success();
}

Status DecodePrograms::readCaches() {
  for (const hal::TensorInfo &tensor : session.state()) {
    if (tensor.role != artifact::Role::cache)
      continue;
    if (tensor.shape.size() != 4 || tensor.elements() == 0)
      return notForInference(
          session, fmt::format("{} is not a paged KV cache", tensor.name));
    if (sizes.pages == 0) {
      sizes.pages = tensor.shape[0];
      sizes.page = tensor.shape[1];
    }
    if (tensor.shape[0] != sizes.pages || tensor.shape[1] != sizes.page)
      return notForInference(session, "its KV caches differ in their pages");
  }
  // Slots are 32-bit numbers.
  if (sizes.pages < 1 || sizes.page > INT32_MAX / sizes.pages)
    return notForInference(session, "it has no KV cache, or one of more than "
                                    "2^31 tokens");
  return Status::success();
}

Status DecodePrograms::checkPorts(const std::string &program, int64_t batch,
                                  int64_t tokens) {
  struct Port {
    std::string_view name;
    ElementType type;
    std::vector<int64_t> shape;
  };
  constexpr auto i32 = ElementType::i32, f32 = ElementType::f32;
  std::vector<Port> wanted = {{"tokens", i32, {batch, tokens}},
                              {"slots", i32, {batch, tokens}},
                              {"table", i32, {batch, tableColumns}},
                              {"starts", i32, {batch}},
                              {"lengths", i32, {batch}},
                              {"allowed", i32, {batch, allowedWords}},
                              {"changed", i32, {batch, sizes.changes}},
                              {"changes", f32, {batch, sizes.changes, 4}},
                              {"options", f32, {batch, 2}},
                              {"limits", i32, {batch, 4}}};
  if (tokens > 1)
    wanted.push_back({"last", i32, {batch}});
  if (sizes.adapters > 0)
    wanted.push_back({"adapters", i32, {sizes.adapters + 1}});
  for (const Port &port : wanted) {
    auto inputs = session.inputs(program);
    auto found =
        std::find_if(inputs.begin(), inputs.end(),
                     [&](const auto &each) { return each.name == port.name; });
    if (found == inputs.end() || found->type != port.type ||
        !std::ranges::equal(found->shape, port.shape))
      return notForInference(
          session,
          fmt::format("the input {} of {} has an unexpected type or shape",
                      port.name, program));
  }
  std::vector<Port> results = {{"logits", f32, {batch, sizes.vocab}},
                               {"token", i32, {batch}}};
  if (!logSums.empty())
    results.push_back({kLogSums, f32, {batch}});
  for (const Port &port : results)
    if (std::ranges::none_of(
            session.outputs(program), [&](const hal::TensorInfo &each) {
              return each.name == port.name && each.type == port.type &&
                     std::ranges::equal(each.shape, port.shape);
            }))
      return notForInference(
          session, fmt::format("{} has no output {}", program, port.name));
  return Status::success();
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
  if (held * sizes.page < tokens || held > tableColumns)
    return Status::error("{} pages of {} tokens cannot hold a sequence of {}",
                         held, sizes.page, tokens);
  if (text.adapter < -1 || text.adapter >= sizes.adapters)
    return Status::error("adapter slot {} is not one of the program's {}",
                         text.adapter, sizes.adapters);
  return Status::success();
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
  table.assign(bucket * tableColumns, 0);
  starts.assign(bucket, 0);
  lengths.assign(bucket, 0);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const CachedText &text = sequences[order[i]];
    std::ranges::copy(text.pages, table.begin() + long(i) * tableColumns);
    starts[i] = int32_t(text.length);
    lengths[i] = int32_t(text.length + added);
  }
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
  allowed.assign(bucket * allowedWords, -1);
  changed.assign(bucket * sizes.changes, -1);
  changes.resize(4 * changed.size());
  options.assign(2 * bucket, 0);
  limits.assign(4 * bucket, 0);
  for (size_t row = 0; row < samplings.size(); ++row) {
    const TokenSampling &sampling = samplings[order[row]];
    writeAllowed(sampling, sizes.vocab,
                 std::span(allowed).subspan(row * size_t(allowedWords),
                                            size_t(allowedWords)));
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
  orderRows(std::span(&text, 1), count);
  ids.assign(tokens.begin(), tokens.end());
  ids.resize(sizes.chunk, 0);
  slots.assign(sizes.chunk, -1);
  for (int64_t i = 0; i < count; ++i)
    slots[i] = slotOf(text, text.length + i);
  TESSERA_RETURN_IF_ERROR(
      writeSlots(prefillProgram, std::span(&text, 1), 1, count));
  int32_t last[] = {int32_t(count - 1)};
  TESSERA_RETURN_IF_ERROR(write<int32_t>(prefillProgram, "last", last));
  return runFor(prefillProgram, 1, wanted);
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
  return checkSamplings(wanted.samplings, count);
}

Status DecodePrograms::decode(std::span<const CachedText> sequences,
                              std::span<const int32_t> tokens,
                              const Wanted &wanted) {
  TESSERA_RETURN_IF_ERROR(checkDecode(sequences, tokens, wanted));
  auto count = int64_t(sequences.size());
  int64_t bucket =
      *std::lower_bound(sizes.buckets.begin(), sizes.buckets.end(), count);
  std::string program = fmt::format("decode_{}", bucket);
  orderRows(sequences, 1);
  ids.assign(bucket, 0);
  slots.assign(bucket, -1);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const CachedText &text = sequences[order[i]];
    ids[i] = tokens[order[i]];
    slots[i] = slotOf(text, text.length);
  }
  TESSERA_RETURN_IF_ERROR(writeSlots(program, sequences, bucket, 1));
  return runFor(program, bucket, wanted);
}

} // namespace tessera
