// Context-free grammars in GBNF, llama.cpp's notation:
//
//   # lists of names and numbers
//   root  ::= "[" (item ("," item)*)? "]"
//   item  ::= [a-z_] [a-z0-9_]{0,15} | "-"? [0-9]+
#pragma once
#include "runtime/infer/grammar/Grammar.h"

#include <string_view>

namespace tessera::grammar {

/// Served: rules `name ::= …` in any order, of which `root` is the text; texts
/// in quotes; classes [a-z], [^\n] and . for any character, all of Unicode;
/// names, groups, |, empty alternatives, ? * + {n} {n,} {n,m}; the escapes \n
/// \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH; comments. A rule goes on
/// over lines until the next begins, as in xgrammar; llama.cpp wants a | or
/// parentheses there.
///
/// An error begins with its place, "line 2, column 7: …", unless it is of the
/// text as a whole: too large, or no UTF-8. Refused are names
/// without a rule, two rules of one name, rules that begin with themselves,
/// a root without a finite text, tokens (<…>), and more than 131,072 bytes or
/// states. Rules that end with themselves are lists of any length; nested
/// otherwise they are followed to Stacks::kMaxDepth.
StatusOr<Grammar> grammarOfGbnf(std::string_view text);

} // namespace tessera::grammar
