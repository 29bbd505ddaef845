module tidesdb

go 1.25
