#include "dialects/graph/Einsum.h"

using namespace tessera::graph;

static llvm::Error makeError(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

llvm::Expected<Einsum> Einsum::parse(llvm::StringRef equation) {
  auto [inputs, out] = equation.split("->");
  auto [lhs, rhs] = inputs.split(',');
  if (!equation.contains("->") || !inputs.contains(','))
    return makeError(
        "expected an equation of the form \"lhs,rhs->out\", got \"" + equation +
        "\"");
  Einsum result{lhs.str(), rhs.str(), out.str()};
  for (llvm::StringRef term : {lhs, rhs, out}) {
    for (size_t i = 0; i < term.size(); ++i) {
      if (!llvm::isLower(term[i]))
        return makeError("dimensions are lower-case labels, got '" +
                         term.substr(i, 1) + "' in \"" + equation + "\"");
      if (term.drop_front(i + 1).contains(term[i]))
        return makeError("label '" + term.substr(i, 1) +
                         "' repeats within one term of \"" + equation + "\"");
    }
  }
  for (char label : out)
    if (!lhs.contains(label) && !rhs.contains(label))
      return makeError("label '" + llvm::Twine(label) +
                       "' of the result is in neither input of \"" + equation +
                       "\"");
  for (llvm::StringRef term : {lhs, rhs})
    for (char label : term)
      if (lhs.contains(label) + rhs.contains(label) + out.contains(label) < 2)
        return makeError("label '" + llvm::Twine(label) +
                         "' is in one input alone in \"" + equation +
                         "\"; reduce it first");
  return result;
}

// The labels of `order` whose presence in (lhs, rhs, out) is as asked.
static std::string pick(const Einsum &e, llvm::StringRef order, bool lhs,
                        bool rhs, bool out) {
  std::string labels;
  for (char label : order)
    if (llvm::StringRef(e.lhs).contains(label) == lhs &&
        llvm::StringRef(e.rhs).contains(label) == rhs &&
        llvm::StringRef(e.out).contains(label) == out)
      labels += label;
  return labels;
}

std::string Einsum::batch() const { return pick(*this, out, true, true, true); }
std::string Einsum::rows() const { return pick(*this, out, true, false, true); }
std::string Einsum::columns() const {
  return pick(*this, out, false, true, true);
}
std::string Einsum::summed() const {
  return pick(*this, lhs, true, true, false);
}
