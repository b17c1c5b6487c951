#include "dialects/graph/Einsum.h"

using namespace tessera::graph;

static llvm::Error complain(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

llvm::Expected<Einsum> Einsum::parse(llvm::StringRef equation) {
  auto [inputs, out] = equation.split("->");
  auto [lhs, rhs] = inputs.split(',');
  if (!equation.contains("->") || !inputs.contains(','))
    return complain(
        "expected an equation of the form \"lhs,rhs->out\", got \"" + equation +
        "\"");
  Einsum result{lhs.str(), rhs.str(), out.str()};
  for (llvm::StringRef term : {lhs, rhs, out}) {
    for (size_t i = 0; i < term.size(); ++i) {
      if (!llvm::isLower(term[i]))
        return complain("dimensions are lower-case letters, got '" +
                        term.substr(i, 1) + "' in \"" + equation + "\"");
      if (term.drop_front(i + 1).contains(term[i]))
        return complain("letter '" + term.substr(i, 1) +
                        "' repeats within one term of \"" + equation + "\"");
    }
  }
  for (char letter : out)
    if (!lhs.contains(letter) && !rhs.contains(letter))
      return complain("letter '" + llvm::Twine(letter) +
                      "' of the result is in neither input of \"" + equation +
                      "\"");
  for (llvm::StringRef term : {lhs, rhs})
    for (char letter : term)
      if (lhs.contains(letter) + rhs.contains(letter) + out.contains(letter) <
          2)
        return complain("letter '" + llvm::Twine(letter) +
                        "' is in one input alone in \"" + equation +
                        "\"; reduce it first");
  return result;
}

// The letters of `order` whose presence in (lhs, rhs, out) is as asked.
static std::string pick(const Einsum &e, llvm::StringRef order, bool lhs,
                        bool rhs, bool out) {
  std::string letters;
  for (char letter : order)
    if (llvm::StringRef(e.lhs).contains(letter) == lhs &&
        llvm::StringRef(e.rhs).contains(letter) == rhs &&
        llvm::StringRef(e.out).contains(letter) == out)
      letters += letter;
  return letters;
}

std::string Einsum::batch() const { return pick(*this, out, true, true, true); }
std::string Einsum::rows() const { return pick(*this, out, true, false, true); }
std::string Einsum::columns() const {
  return pick(*this, out, false, true, true);
}
std::string Einsum::summed() const {
  return pick(*this, lhs, true, true, false);
}
