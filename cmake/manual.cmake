# SPDX-License-Identifier: Apache-2.0
# Writes to OUTPUT the output of TOOL for WHAT (--print-man or --print-completion), followed by that of each of its
# COMMANDS (separated by commas).
function(print_part)
  execute_process(COMMAND "${TOOL}" ${ARGV} "${WHAT}" OUTPUT_VARIABLE part RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${TOOL} ${ARGV} ${WHAT}: ${status}")
  endif()
  file(APPEND "${OUTPUT}" "${part}")
endfunction()

file(WRITE "${OUTPUT}" "")
print_part()
string(REPLACE "," ";" commands "${COMMANDS}")
foreach(command IN LISTS commands)
  print_part("${command}")
endforeach()
