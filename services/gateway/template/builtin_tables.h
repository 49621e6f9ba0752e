// The tables that the builtins files contribute; builtins.cc searches them.
#pragma once

#include <span>

#include "services/gateway/template/builtins.h"

namespace strata::gateway::jinja {

std::span<const Named<FilterFunction>> TextFilters();      // filters_text.cc
std::span<const Named<FilterFunction>> SequenceFilters();  // filters_sequence.cc
std::span<const Named<FilterFunction>> SelectFilters();    // filters_select.cc
std::span<const Named<FilterFunction>> ValueFilters();     // filters_value.cc
std::span<const Named<FilterFunction>> StringMethods();    // methods_string.cc
std::span<const Named<FilterFunction>> ListMethods();      // methods_container.cc
std::span<const Named<FilterFunction>> TupleMethods();
std::span<const Named<FilterFunction>> DictMethods();

}  // namespace strata::gateway::jinja
