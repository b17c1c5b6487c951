// Context-free grammars in GBNF, llama.cpp's notation:
//
//   # lists of names and numbers
//   root  ::= "[" (item ("," item)*)? "]"
//   item  ::= [a-z_] [a-z0-9_]{0,15} | "-"? [0-9]+
#pragma once
#include "runtime/infer/grammar/Grammar.h"

#include <string_view>

namespace tessera::grammar {

/// Supports rules `name ::= …` in any order, of which `root` is the start;
/// strings in quotes; classes [a-z], [^\n] and . for any Unicode character;
/// names, groups, |, empty alternatives, ? * + {n} {n,} {n,m}; the escapes \n
/// \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH; comments. A rule continues
/// over lines until the next begins, as in xgrammar; llama.cpp requires a | or
/// parentheses there.
///
/// Errors begin with a position, "line 2, column 7: …", unless they concern the
/// whole source: too large, or not UTF-8. Errors are names without a rule,
/// duplicate rules, left recursion, a root that matches no finite string,
/// tokens (<…>), and more than 131,072 bytes or states. Right recursion is a
/// list of any length; other nesting is followed to Stacks::kMaxDepth.
StatusOr<Grammar> grammarOfGbnf(std::string_view text);

} // namespace tessera::grammar
