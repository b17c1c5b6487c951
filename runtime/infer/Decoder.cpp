#include "runtime/infer/Decoder.h"
#include "runtime/recipe/Recipe.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

namespace tessera {
namespace {

using artifact::ElementType;

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

} // namespace

StatusOr<std::unique_ptr<Decoder>> Decoder::create(hal::Session &session) {
  std::unique_ptr<Decoder> decoder(new Decoder(session));
  TESSERA_RETURN_IF_ERROR(decoder->readShape());
  decoder->unused.resize(decoder->sizes.pages);
  std::iota(decoder->unused.rbegin(), decoder->unused.rend(), 0);
  int64_t most = std::max(decoder->sizes.chunk, decoder->sizes.buckets.back());
  for (std::vector<int32_t> *each :
       {&decoder->ids, &decoder->slots, &decoder->starts, &decoder->lengths})
    each->reserve(most);
  decoder->table.reserve(decoder->tableColumns * decoder->sizes.buckets.back());
  decoder->scores.resize(decoder->sizes.vocab * decoder->sizes.buckets.back());
  return decoder;
}

Status Decoder::readShape() {
  for (const artifact::Program *program : *session.code().programs()) {
    std::string name = program->name()->str();
    if (auto batch = numberAfter(name, "decode_")) {
      sizes.buckets.push_back(*batch);
    } else if (auto tokens = numberAfter(name, "prefill_")) {
      sizes.chunk = *tokens;
      prefill = name;
    }
  }
  std::sort(sizes.buckets.begin(), sizes.buckets.end());
  if (sizes.buckets.empty() || prefill.empty())
    return notForInference(session, "it has no prefill and decode programs");
  TESSERA_RETURN_IF_ERROR(readCaches());
  for (const hal::TensorInfo &tensor : session.outputs(prefill))
    if (tensor.name == "logits" && tensor.shape.size() == 2)
      sizes.vocab = tensor.shape[1];
  for (const hal::TensorInfo &tensor : session.inputs(prefill))
    if (tensor.name == "table" && tensor.shape.size() == 2)
      tableColumns = tensor.shape[1];
  // The table's bytes and the logits' are in the artifact's arena, proven by
  // its reader; what is multiplied here stays far below 2^63.
  if (sizes.vocab < 1 || sizes.vocab > INT32_MAX || tableColumns < 1 ||
      tableColumns > INT32_MAX)
    return notForInference(session, "it has no table or no logits");
  TESSERA_RETURN_IF_ERROR(checkPorts(prefill, 1, sizes.chunk));
  for (int64_t batch : sizes.buckets)
    TESSERA_RETURN_IF_ERROR(
        checkPorts(fmt::format("decode_{}", batch), batch, 1));
  auto recipe = recipe::parseRecipe(session.artifact().recipe()->string_view(),
                                    "the artifact's recipe");
  if (!recipe.ok())
    return recipe.status();
  sizes.context =
      std::min(recipe->inference.context, tableColumns * sizes.page);
  return Status::success();
}

Status Decoder::readCaches() {
  for (const hal::TensorInfo &tensor : session.state()) {
    if (tensor.role != artifact::Role::cache)
      continue;
    if (tensor.shape.size() != 4 || tensor.elements() == 0)
      return notForInference(
          session, fmt::format("{} is no cache of pages", tensor.name));
    if (sizes.pages == 0) {
      sizes.pages = tensor.shape[0];
      sizes.page = tensor.shape[1];
    }
    if (tensor.shape[0] != sizes.pages || tensor.shape[1] != sizes.page)
      return notForInference(session, "its caches have different pages");
  }
  // Slots are 32-bit numbers.
  if (sizes.pages < 1 || sizes.page > INT32_MAX / sizes.pages)
    return notForInference(session, "it has no cache, or one of more than "
                                    "2^31 tokens");
  return Status::success();
}

Status Decoder::checkPorts(const std::string &program, int64_t batch,
                           int64_t tokens) {
  struct Port {
    std::string_view name;
    std::vector<int64_t> shape;
  };
  std::vector<Port> wanted = {{"tokens", {batch, tokens}},
                              {"slots", {batch, tokens}},
                              {"table", {batch, tableColumns}},
                              {"starts", {batch}},
                              {"lengths", {batch}}};
  if (tokens > 1)
    wanted.push_back({"last", {batch}});
  for (const Port &port : wanted) {
    auto inputs = session.inputs(program);
    auto found =
        std::find_if(inputs.begin(), inputs.end(),
                     [&](const auto &each) { return each.name == port.name; });
    if (found == inputs.end() || found->type != ElementType::i32 ||
        !std::ranges::equal(found->shape, port.shape))
      return notForInference(
          session, fmt::format("the input {} of {} is not as expected",
                               port.name, program));
  }
  for (const hal::TensorInfo &output : session.outputs(program))
    if (output.name == "logits" && output.type == ElementType::f32 &&
        std::ranges::equal(output.shape, std::array{batch, sizes.vocab}))
      return Status::success();
  return notForInference(session, program + " gives no logits");
}

//===--- pages ------------------------------------------------------------===//

bool Decoder::hasRoom(const Sequence &sequence, int64_t count) const {
  int64_t tokens = sequence.tokens + count;
  int64_t more =
      (tokens + sizes.page - 1) / sizes.page - int64_t(sequence.pages.size());
  return tokens <= sizes.context && more <= freePages();
}

Status Decoder::noContext(int64_t tokens) const {
  return Status::error("a sequence of {} tokens is longer than the context of "
                       "{}; raise inference.context when compiling",
                       tokens, sizes.context);
}

Status Decoder::reserve(Sequence &sequence, int64_t count) {
  int64_t tokens = sequence.tokens + count;
  if (tokens > sizes.context)
    return noContext(tokens);
  if (!hasRoom(sequence, count))
    return Status::error("the cache has no page left for a sequence of {} "
                         "tokens; end another one, or raise inference.pages "
                         "when compiling (now {} pages of {} tokens)",
                         tokens, sizes.pages, sizes.page);
  while (int64_t(sequence.pages.size()) * sizes.page < tokens) {
    sequence.pages.push_back(unused.back());
    unused.pop_back();
  }
  return Status::success();
}

// One more token for each, or nothing.
Status Decoder::reserveAll(std::span<Sequence *const> sequences) {
  int64_t needed = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence &each = *sequences[i];
    if (std::ranges::count(sequences.first(i), sequences[i]))
      return Status::error("a sequence is twice in one step");
    if (each.tokens + 1 > sizes.context)
      return noContext(each.tokens + 1);
    needed += each.tokens == int64_t(each.pages.size()) * sizes.page;
  }
  if (needed > freePages())
    return Status::error("the cache has {} pages left and {} sequences need "
                         "one each; end another one, or raise inference.pages "
                         "when compiling (now {} pages of {} tokens)",
                         freePages(), needed, sizes.pages, sizes.page);
  for (Sequence *each : sequences)
    TESSERA_RETURN_IF_ERROR(reserve(*each, 1));
  return Status::success();
}

void Decoder::release(Sequence &sequence) {
  unused.insert(unused.end(), sequence.pages.rbegin(), sequence.pages.rend());
  sequence.pages.clear();
  sequence.tokens = 0;
}

int32_t Decoder::slotOf(const Sequence &sequence, int64_t position) const {
  return int32_t(sequence.pages[position / sizes.page] * sizes.page +
                 position % sizes.page);
}

//===--- running ----------------------------------------------------------===//

Status Decoder::checkTokens(std::span<const int32_t> tokens) const {
  for (int32_t token : tokens)
    if (token < 0 || token >= sizes.vocab)
      return Status::error("token {} is outside the vocabulary of {}", token,
                           sizes.vocab);
  return Status::success();
}

Status Decoder::writePlaces(const std::string &program,
                            std::span<Sequence *const> sequences,
                            int64_t bucket, int64_t added) {
  table.assign(bucket * tableColumns, 0);
  starts.assign(bucket, 0);
  lengths.assign(bucket, 0);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence &each = *sequences[i];
    std::ranges::copy(each.pages, table.begin() + i * tableColumns);
    starts[i] = int32_t(each.tokens);
    lengths[i] = int32_t(each.tokens + added);
  }
  TESSERA_RETURN_IF_ERROR(session.writeInput<int32_t>(program, "tokens", ids));
  TESSERA_RETURN_IF_ERROR(session.writeInput<int32_t>(program, "slots", slots));
  TESSERA_RETURN_IF_ERROR(session.writeInput<int32_t>(program, "table", table));
  TESSERA_RETURN_IF_ERROR(
      session.writeInput<int32_t>(program, "starts", starts));
  return session.writeInput<int32_t>(program, "lengths", lengths);
}

Status Decoder::readChunk(Sequence &sequence, std::span<const int32_t> tokens,
                          bool wanted) {
  auto count = int64_t(tokens.size());
  ids.assign(tokens.begin(), tokens.end());
  ids.resize(sizes.chunk, 0);
  slots.assign(sizes.chunk, -1);
  for (int64_t i = 0; i < count; ++i)
    slots[i] = slotOf(sequence, sequence.tokens + i);
  Sequence *one[] = {&sequence};
  TESSERA_RETURN_IF_ERROR(writePlaces(prefill, one, 1, count));
  int32_t last[] = {int32_t(count - 1)};
  TESSERA_RETURN_IF_ERROR(session.writeInput<int32_t>(prefill, "last", last));
  TESSERA_RETURN_IF_ERROR(session.run(prefill));
  sequence.tokens += count;
  if (!wanted)
    return Status::success();
  return session.readOutput(
      prefill, "logits",
      std::as_writable_bytes(std::span(scores).first(sizes.vocab)));
}

Status Decoder::read(Sequence &sequence, std::span<const int32_t> tokens) {
  if (tokens.empty())
    return Status::error("there is no token to read");
  TESSERA_RETURN_IF_ERROR(checkTokens(tokens));
  TESSERA_RETURN_IF_ERROR(reserve(sequence, int64_t(tokens.size())));
  while (!tokens.empty()) {
    auto count = std::min<size_t>(tokens.size(), sizes.chunk);
    TESSERA_RETURN_IF_ERROR(readChunk(sequence, tokens.first(count),
                                      /*wanted=*/count == tokens.size()));
    tokens = tokens.subspan(count);
  }
  return Status::success();
}

Status Decoder::step(std::span<Sequence *const> sequences,
                     std::span<const int32_t> tokens) {
  auto count = int64_t(sequences.size());
  if (count == 0 || count > sizes.buckets.back() ||
      tokens.size() != sequences.size())
    return Status::error("{} tokens for {} sequences; 1 to {} decode together",
                         tokens.size(), count, sizes.buckets.back());
  TESSERA_RETURN_IF_ERROR(checkTokens(tokens));
  TESSERA_RETURN_IF_ERROR(reserveAll(sequences));
  int64_t bucket =
      *std::lower_bound(sizes.buckets.begin(), sizes.buckets.end(), count);
  std::string program = fmt::format("decode_{}", bucket);
  ids.assign(tokens.begin(), tokens.end());
  ids.resize(bucket, 0);
  slots.assign(bucket, -1);
  for (int64_t i = 0; i < count; ++i)
    slots[i] = slotOf(*sequences[i], sequences[i]->tokens);
  TESSERA_RETURN_IF_ERROR(writePlaces(program, sequences, bucket, 1));
  TESSERA_RETURN_IF_ERROR(session.run(program));
  for (Sequence *each : sequences)
    ++each->tokens;
  return session.readOutput(
      program, "logits",
      std::as_writable_bytes(std::span(scores).first(bucket * sizes.vocab)));
}

} // namespace tessera
