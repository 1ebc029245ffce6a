"""What a report is made of: run folders gathered, curves and samples worked out, blocks of charts and tables, the page."""
