#include "runtime/infer/DecoderPorts.h"
#include "runtime/recipe/Recipe.h"

#include <algorithm>
#include <charconv>

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

class PortReader {
public:
  explicit PortReader(const hal::Session &session) : session(session) {}
  Status readShape();
  DecoderPorts ports;

private:
  Status readCaches();
  Status addStates(const hal::TensorInfo &tensor);
  Status addPages(int64_t page);
  Status checkPorts(const std::string &program, int64_t batch, int64_t tokens);

  const hal::Session &session;
  DecoderShape &sizes = ports.shape;
};

Status PortReader::readShape() {
  for (const artifact::Program *program : *session.code().programs()) {
    std::string name = program->name()->str();
    if (auto batch = numberAfter(name, "decode_")) {
      sizes.buckets.push_back(*batch);
    } else if (auto tokens = numberAfter(name, "prefill_")) {
      ports.prompts.push_back(*tokens);
    }
  }
  std::ranges::sort(sizes.buckets);
  std::ranges::sort(ports.prompts);
  if (sizes.buckets.empty() || ports.prompts.empty())
    return notForInference(session, "it has no prefill and decode programs");
  sizes.chunk = ports.prompts.back();
  const std::string prefill = prefillOf(sizes.chunk);
  auto recipe = recipe::parseRecipe(session.artifact().recipe()->string_view(),
                                    "the artifact's recipe");
  if (!recipe.ok())
    return recipe.status();
  TESSERA_RETURN_IF_ERROR(readCaches());
  for (const hal::TensorInfo &tensor : session.outputs(prefill))
    if (tensor.name == "logits" && tensor.shape.size() == 2)
      sizes.vocab = tensor.shape[1];
    else if (tensor.name == kLogSums)
      ports.hasLogSums = true;
  for (const hal::TensorInfo &tensor : session.inputs(prefill))
    if (tensor.name == "adapters" && tensor.elements() > 1) {
      sizes.adapters = int64_t(tensor.elements()) - 1;
    } else if (tensor.shape.size() == 2) {
      if (tensor.name == "table")
        ports.tableColumns = tensor.shape[1];
      else if (tensor.name == "allowed")
        ports.allowedWords = tensor.shape[1];
      else if (tensor.name == "changed")
        sizes.changes = tensor.shape[1];
    }
  // The artifact's reader has checked that the block table and the logits fit
  // its arena, so the products below stay far under 2^63.
  if (sizes.vocab < 1 || sizes.vocab > INT32_MAX || ports.tableColumns < 1 ||
      ports.tableColumns > INT32_MAX)
    return notForInference(session, "it has no block table or no logits");
  if (sizes.changes < 1 || sizes.vocab > kMostChoices ||
      ports.allowedWords < (sizes.vocab + 31) / 32)
    return notForInference(session, "it does not sample tokens");
  TESSERA_RETURN_IF_ERROR(addPages(recipe->inference.page));
  for (int64_t tokens : ports.prompts)
    TESSERA_RETURN_IF_ERROR(checkPorts(prefillOf(tokens), 1, tokens));
  for (int64_t batch : sizes.buckets)
    TESSERA_RETURN_IF_ERROR(checkPorts(decodeOf(batch), batch, 1));
  sizes.context =
      std::min(recipe->inference.context, ports.tableColumns * sizes.page);
  sizes.hasWholePrompts =
      recipe->attention.prompts == recipe::Prompts::Bidirectional;
  return Status::success();
}

Status PortReader::readCaches() {
  for (const hal::TensorInfo &tensor : session.state()) {
    if (tensor.role == artifact::Role::recurrent) {
      TESSERA_RETURN_IF_ERROR(addStates(tensor));
      continue;
    }
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
  return Status::success();
}

Status PortReader::addStates(const hal::TensorInfo &tensor) {
  if (tensor.shape.empty() || tensor.elements() == 0)
    return notForInference(
        session,
        fmt::format("{} is not a state for each sequence", tensor.name));
  if (sizes.states == 0)
    sizes.states = tensor.shape[0];
  if (tensor.shape[0] != sizes.states || sizes.states > INT32_MAX)
    return notForInference(session,
                           "its recurrent states are of different numbers of "
                           "sequences");
  return Status::success();
}

// Recurrent layers have no pages. Without attention the tokens of a sequence
// are counted in pages all the same, as many as its states may ever need.
Status PortReader::addPages(int64_t page) {
  if (sizes.pages == 0 && sizes.states > 0 &&
      ports.tableColumns <= INT32_MAX / sizes.states)
    sizes.page = page, sizes.pages = sizes.states * ports.tableColumns;
  // Slots are 32-bit numbers.
  if (sizes.pages < 1 || sizes.page < 1 || sizes.page > INT32_MAX / sizes.pages)
    return notForInference(session, "it has no KV cache, or one of more than "
                                    "2^31 tokens");
  return Status::success();
}

Status PortReader::checkPorts(const std::string &program, int64_t batch,
                              int64_t tokens) {
  struct Port {
    std::string_view name;
    ElementType type;
    std::vector<int64_t> shape;
  };
  constexpr auto i32 = ElementType::i32, f32 = ElementType::f32;
  std::vector<Port> wanted = {{"tokens", i32, {batch, tokens}},
                              {"slots", i32, {batch, tokens}},
                              {"table", i32, {batch, ports.tableColumns}},
                              {"starts", i32, {batch}},
                              {"lengths", i32, {batch}},
                              {"allowed", i32, {batch, ports.allowedWords}},
                              {"changed", i32, {batch, sizes.changes}},
                              {"changes", f32, {batch, sizes.changes, 4}},
                              {"options", f32, {batch, 2}},
                              {"limits", i32, {batch, 4}}};
  if (program == prefillOf(tokens))
    wanted.push_back({"last", i32, {batch}});
  if (sizes.adapters > 0)
    wanted.push_back({"adapters", i32, {sizes.adapters + 1}});
  if (sizes.states > 0)
    wanted.push_back({"states", i32, {batch}});
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
  if (ports.hasLogSums)
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

} // namespace

std::string prefillOf(int64_t tokens) {
  return fmt::format("prefill_{}", tokens);
}

std::string decodeOf(int64_t sequences) {
  return fmt::format("decode_{}", sequences);
}

StatusOr<DecoderPorts> readDecoderPorts(const hal::Session &session) {
  PortReader reader(session);
  TESSERA_RETURN_IF_ERROR(reader.readShape());
  return reader.ports;
}

} // namespace tessera
