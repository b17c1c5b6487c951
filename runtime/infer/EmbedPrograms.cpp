#include "runtime/infer/EmbedPrograms.h"
#include "runtime/recipe/Recipe.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>

namespace tessera {
namespace {

using artifact::ElementType;

/// The input that only cross-encoders have.
constexpr std::string_view kSecondBegins = "second_begins";

std::string programName(int64_t batch, int64_t tokens) {
  return fmt::format("embed_{}x{}", batch, tokens);
}

/// B and T of "embed_BxT".
std::optional<std::pair<int64_t, int64_t>> sizesOf(std::string_view name) {
  constexpr std::string_view prefix = "embed_";
  if (!name.starts_with(prefix))
    return std::nullopt;
  int64_t batch = 0, tokens = 0;
  const char *end = name.data() + name.size();
  auto first = std::from_chars(name.data() + prefix.size(), end, batch);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != 'x')
    return std::nullopt;
  auto second = std::from_chars(first.ptr + 1, end, tokens);
  if (second.ec != std::errc() || second.ptr != end || batch < 1 ||
      tokens < 1 || batch > INT32_MAX || tokens > INT32_MAX)
    return std::nullopt;
  return std::pair(batch, tokens);
}

Status notForEmbedding(const hal::Session &session, std::string_view what) {
  return Status::error("this program does not embed sequences: {}; compile an "
                       "encoder with --mode "
                       "infer (it was made by: {})",
                       what,
                       session.artifact().rebuild_command()->string_view());
}

} // namespace

Status checkText(const EmbeddingShape &shape, TokenSpan text) {
  if (text.empty() || int64_t(text.size()) > shape.context)
    return Status::error("a sequence of {} tokens; the model accepts 1 to {}",
                         text.size(), shape.context);
  for (int32_t token : text)
    if (token < 0 || token >= shape.vocab)
      return Status::error("token {} is outside the vocabulary of {}", token,
                           shape.vocab);
  return Status::success();
}

Status embedAll(EmbeddingModel &model, std::span<const TokenSequence> sequences,
                std::span<float> vectors) {
  const EmbeddingShape &shape = model.shape();
  if (vectors.size() != sequences.size() * std::size_t(shape.width))
    return Status::error("{} sequences need {} floats, got a buffer of {}",
                         sequences.size(), sequences.size() * shape.width,
                         vectors.size());
  std::map<int64_t, std::vector<std::size_t>> byLength;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(checkText(shape, sequences[i].tokens));
    byLength[shape.lengthFor(int64_t(sequences[i].tokens.size()))].push_back(i);
  }
  std::vector<TokenSequence> some;
  std::vector<float> made(shape.batch * shape.width);
  for (const auto &[length, members] : byLength)
    for (std::size_t begin = 0; begin < members.size();
         begin += std::size_t(shape.batch)) {
      auto now = std::span(members).subspan(begin);
      now = now.first(std::min(now.size(), std::size_t(shape.batch)));
      some.clear();
      for (std::size_t i : now)
        some.push_back(sequences[i]);
      TESSERA_RETURN_IF_ERROR(
          model.embed(some, std::span(made).first(now.size() * shape.width)));
      for (std::size_t i = 0; i < now.size(); ++i)
        std::copy_n(made.begin() + long(i * shape.width), shape.width,
                    vectors.begin() + long(now[i] * shape.width));
    }
  return Status::success();
}

StatusOr<std::unique_ptr<EmbedPrograms>>
EmbedPrograms::create(hal::Session &session, int64_t vocab) {
  std::unique_ptr<EmbedPrograms> programs(new EmbedPrograms(session));
  TESSERA_RETURN_IF_ERROR(programs->readShape(vocab));
  return programs;
}

Status EmbedPrograms::readShape(int64_t vocab) {
  std::vector<std::pair<int64_t, int64_t>> buckets;
  for (const artifact::Program *program : *session.code().programs())
    if (auto bucket = sizesOf(program->name()->string_view()))
      buckets.push_back(*bucket);
  if (buckets.empty())
    return notForEmbedding(session, "it has no embed programs");
  for (auto [batch, tokens] : buckets) {
    sizes.batch = std::max(sizes.batch, batch);
    if (batch == 1)
      sizes.lengths.push_back(tokens);
  }
  std::ranges::sort(sizes.lengths);
  // For each length: a single sequence, and a full batch.
  for (int64_t tokens : sizes.lengths)
    if (!session.hasProgram(programName(sizes.batch, tokens)))
      return notForEmbedding(session,
                             "it lacks " + programName(sizes.batch, tokens));
  if (sizes.lengths.empty())
    return notForEmbedding(session, "it has no program for a batch of one");
  for (const hal::TensorInfo &tensor :
       session.outputs(programName(1, sizes.lengths.front())))
    if ((tensor.name == "embeddings" || tensor.name == "scores") &&
        tensor.shape.size() == 2) {
      output = tensor.name;
      sizes.width = tensor.shape[1];
    }
  if (sizes.width < 1)
    return notForEmbedding(session, "it has no output of embeddings");
  hasPairs = std::ranges::any_of(
      session.inputs(programName(1, sizes.lengths.front())),
      [](const hal::TensorInfo &each) { return each.name == kSecondBegins; });
  for (int64_t tokens : sizes.lengths)
    for (int64_t batch : {int64_t(1), sizes.batch})
      TESSERA_RETURN_IF_ERROR(checkPorts(batch, tokens));
  auto recipe = recipe::parseRecipe(session.artifact().recipe()->string_view(),
                                    "the artifact's recipe");
  if (!recipe.ok())
    return recipe.status();
  sizes.context = std::min(recipe->inference.context, sizes.lengths.back());
  sizes.vocab = std::min<int64_t>(vocab, INT32_MAX);
  results.resize(sizes.batch * sizes.width);
  return Status::success();
}

Status EmbedPrograms::checkPorts(int64_t batch, int64_t tokens) {
  const std::string program = programName(batch, tokens);
  auto has = [](std::span<const hal::TensorInfo> ports, std::string_view name,
                ElementType type, std::span<const int64_t> shape) {
    return std::ranges::any_of(ports, [&](const hal::TensorInfo &each) {
      return each.name == name && each.type == type &&
             std::ranges::equal(each.shape, shape);
    });
  };
  auto inputs = session.inputs(program), outputs = session.outputs(program);
  if (has(inputs, "tokens", ElementType::i32, std::array{batch, tokens}) &&
      has(inputs, "lengths", ElementType::i32, std::array{batch}) &&
      (!hasPairs ||
       has(inputs, kSecondBegins, ElementType::i32, std::array{batch})) &&
      has(outputs, output, ElementType::f32, std::array{batch, sizes.width}))
    return Status::success();
  return notForEmbedding(session, "the inputs and outputs of " + program +
                                      " have unexpected types or shapes");
}

//===--- running ----------------------------------------------------------===//

Status EmbedPrograms::runOne(std::span<const TokenSequence> sequences,
                             int64_t batch, int64_t tokens,
                             std::span<float> vectors) {
  ids.assign(batch * tokens, 0);
  lengths.assign(batch, 0);
  secondBegins.assign(batch, 0);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    std::ranges::copy(sequences[i].tokens, ids.begin() + long(i) * tokens);
    lengths[i] = int32_t(sequences[i].tokens.size());
    secondBegins[i] = int32_t(sequences[i].secondBegins);
  }
  const std::string program = programName(batch, tokens);
  TESSERA_RETURN_IF_ERROR(session.writeInput<int32_t>(program, "tokens", ids));
  TESSERA_RETURN_IF_ERROR(
      session.writeInput<int32_t>(program, "lengths", lengths));
  if (hasPairs)
    TESSERA_RETURN_IF_ERROR(
        session.writeInput<int32_t>(program, kSecondBegins, secondBegins));
  TESSERA_RETURN_IF_ERROR(session.run(program));
  auto made = std::span(results).first(batch * sizes.width);
  TESSERA_RETURN_IF_ERROR(
      session.readOutput(program, output, std::as_writable_bytes(made)));
  std::ranges::copy(made.first(vectors.size()), vectors.begin());
  return Status::success();
}

// A batch that is at most half full costs more than its sequences one by one.
Status EmbedPrograms::embed(std::span<const TokenSequence> sequences,
                            std::span<float> vectors) {
  const auto count = int64_t(sequences.size());
  if (count < 1 || count > sizes.batch ||
      int64_t(vectors.size()) != count * sizes.width)
    return Status::error(
        "{} sequences with a buffer of {} floats; 1 to {} sequences run "
        "together, {} floats each",
        count, vectors.size(), sizes.batch, sizes.width);
  int64_t tokens = 0;
  for (const auto &[text, secondBegins] : sequences) {
    TESSERA_RETURN_IF_ERROR(checkText(sizes, text));
    tokens = std::max(tokens, sizes.lengthFor(int64_t(text.size())));
  }
  if (2 * count > sizes.batch)
    return runOne(sequences, sizes.batch, tokens, vectors);
  for (int64_t i = 0; i < count; ++i)
    TESSERA_RETURN_IF_ERROR(
        runOne(sequences.subspan(i, 1), 1, tokens,
               vectors.subspan(i * sizes.width, sizes.width)));
  return Status::success();
}

} // namespace tessera
