#include "runtime/bench/CachedInputs.h"

#include <algorithm>

namespace tessera {
namespace {

/// Sizes of a program over a cache; zero where the program is another.
struct CacheSizes {
  std::int64_t pages = 0, page = 0, tokens = 0, columns = 0;

  CacheSizes(const hal::Session &session, std::string_view program) {
    std::int64_t states = 0;
    for (const hal::TensorInfo &tensor : session.state())
      if (tensor.role == artifact::Role::cache && tensor.shape.size() == 4) {
        pages = tensor.shape[0];
        page = tensor.shape[1];
      } else if (tensor.role == artifact::Role::recurrent &&
                 !tensor.shape.empty()) {
        states = tensor.shape[0];
      }
    for (const hal::TensorInfo &tensor : session.inputs(program)) {
      if (tensor.name == "table" && tensor.shape.size() == 2)
        columns = tensor.shape[1];
      if (tensor.name == "slots" && tensor.shape.size() == 2)
        tokens = tensor.shape[1];
    }
    if (pages == 0 && states > 0) { // no attention, and no pages to read
      page = std::max<std::int64_t>(tokens, 1);
      pages = states * columns;
    }
  }
  std::int64_t context() const { return columns * page; }
  std::int64_t start() const { return context() - tokens; }
  std::int64_t pageOf(std::int64_t sequence, std::int64_t entry) const {
    return (sequence * columns + entry) % pages;
  }
  std::int64_t slotOf(std::int64_t sequence, std::int64_t token) const {
    const std::int64_t at = start() + token;
    // A page that several sequences share is not written.
    if ((sequence + 1) * columns > pages)
      return -1;
    return pageOf(sequence, at / page) * page + at % page;
  }
};

} // namespace

std::vector<std::int32_t> cachedInput(const hal::Session &session,
                                      std::string_view program,
                                      const hal::TensorInfo &input) {
  const CacheSizes sizes(session, program);
  if (sizes.pages < 1 || sizes.columns < 1 || sizes.tokens < 1 ||
      sizes.start() < 0 || input.type != artifact::ElementType::i32)
    return {};
  std::vector<std::int32_t> values(input.elements());
  for (std::int64_t i = 0; i < std::int64_t(values.size()); ++i) {
    std::int64_t value = 0;
    if (input.name == "table")
      value = sizes.pageOf(i / sizes.columns, i % sizes.columns);
    else if (input.name == "slots")
      value = sizes.slotOf(i / sizes.tokens, i % sizes.tokens);
    else if (input.name == "starts")
      value = sizes.start();
    else if (input.name == "lengths")
      value = sizes.context();
    else if (input.name == "states")
      value = i;
    else if (input.name == "last")
      value = sizes.tokens - 1;
    else if (input.name == "changed" && input.shape.size() == 2)
      value = i % input.shape[1]; // no token twice in a row
    else
      return {};
    values[i] = std::int32_t(value);
  }
  return values;
}

} // namespace tessera
